#include "take_over.h"

#include <httplib.h>
#include <sys/socket.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "offer_json.h"

namespace millrace::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// What an answer says went wrong.
std::string reason_in(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_string())
    return json["error"].get<std::string>();
  return "it answers what is no answer";
}

}  // namespace

/// The answer's text, or nothing where `receive` got it.
Result<std::string> TakeOver::ask(const std::string& path, const Receive& receive) {
  constexpr int kAnyPort = 1;
  constexpr std::chrono::seconds kPatience{30};
  httplib::Client client(socket_, kAnyPort);
  client.set_address_family(AF_UNIX);
  client.set_read_timeout(kPatience);
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  std::string refusal;
  if (receive) {
    int status = 0;
    request.response_handler = [&status](const httplib::Response& response) {
      status = response.status;
      return true;
    };
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t,
                                   std::uint64_t) {
      if (status == 200) return receive(std::as_bytes(std::span(data, size)));
      refusal.append(data, size);
      return true;
    };
  }
  const httplib::Result result = client.send(request);
  if (!result) {
    met_ = result.error() == httplib::Error::Connection ? Met::nobody : Met::silence;
    return std::unexpected(
        Error{"the running millrace broke off: " + httplib::to_string(result.error())});
  }
  met_ = Met::somebody;
  if (result->status == 200) return result->body;
  return std::unexpected(Error{"the running millrace does not hand over: " +
                               reason_in(receive ? refusal : result->body)});
}

Result<std::unique_ptr<TakeOver>> TakeOver::begin(const std::string& socket) {
  std::unique_ptr<TakeOver> take_over(new TakeOver(socket));
  const auto answer = take_over->ask("/handover");
  if (take_over->met_ == Met::nobody) return nullptr;
  if (!answer) return std::unexpected(answer.error());
  auto offer = offer_from(Json::parse(*answer, nullptr, false));
  if (!offer) return std::unexpected(offer.error());
  take_over->offer_ = std::move(*offer);
  return take_over;
}

/// What has changed since it was told last.
Result<void> TakeOver::take_all(bool last) {
  std::optional<Error> wrong;
  const auto told = ask(
      "/handover/connections?number=" + std::to_string(offer_.number) + (last ? "&last=true" : ""),
      [&](std::span<const std::byte> bytes) {
        if (auto ok = taking_over_->take(bytes); !ok) wrong = ok.error();
        return !wrong;
      });
  if (wrong) return std::unexpected(*wrong);
  if (!told) return std::unexpected(told.error());
  return taking_over_->end();
}

/// The less there is to tell, the sooner is what is left told.
Result<void> TakeOver::start(Workers& workers, std::shared_ptr<const Owners> owners) {
  constexpr unsigned kMostTimes = 10;
  constexpr std::chrono::milliseconds kSoon{10};
  taking_over_ = std::make_unique<TakingOver>(workers, std::move(owners), offer_);
  for (unsigned times = 0; times < kMostTimes; ++times) {
    const auto before = SteadyClock::now();
    if (auto ok = take_all(false); !ok) return ok;
    if (SteadyClock::now() - before < kSoon) break;
  }
  return {};
}

Result<void> TakeOver::stop_the_other() { return take_all(true); }

/// It may have ended before it could answer. Who has the devices shows then whether it has.
Result<void> TakeOver::let_the_other_end() {
  const auto ended = ask("/handover/end?number=" + std::to_string(offer_.number));
  if (ended || met_ != Met::somebody) return {};
  return std::unexpected(ended.error());
}

void TakeOver::inherit(Live& live) const {
  Devices& devices = live.devices();
  for (std::size_t d = 0; d < devices.count(); ++d) {
    const std::string name = to_string(devices.name(d));
    for (const auto& [device, to_restore] : offer_.interfaces) {
      if (device == name) devices.restore(d, to_restore);
    }
    for (const auto& [device, address, mac] : offer_.neighbours) {
      if (device == name) live.know({static_cast<unsigned>(d), address, mac});
    }
  }
}

}  // namespace millrace::cli
