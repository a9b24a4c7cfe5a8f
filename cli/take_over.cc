#include "take_over.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "command_line/interrupt.h"
#include "control/offer_json.h"
#include "core/json.h"
#include "port/unix_address.h"

namespace millrace::cli {
namespace {

/// Returns the reason of a refusal; `body` is the body of the answer.
std::string reason_in(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_string())
    return json["error"].get<std::string>();
  return "its answer gives no reason";
}

std::unexpected<Error> interruption() {
  return std::unexpected(Error{"interrupted: the running millrace goes on"});
}

/// Returns a pidfd of the process that listens at the socket `path`; -1 if that process cannot be
/// seen from here, none if no process listens. Errors: this user may not ask the process, the
/// process runs as another user than this one or root, or the process is too busy.
Result<std::optional<int>> process_at(const std::string& path) {
  const auto address = unix_address(path);
  if (!address) return std::unexpected(address.error());
  const auto cannot = [&path](const std::string& why) {
    return std::unexpected(Error{"the millrace at " + path + " cannot be asked: " + why});
  };
  const Listening is = who_listens(*address);
  if (is.is_nobody()) return std::nullopt;
  const std::string as_who = ": run this process as the same user as that millrace";
  if (is.error == EAGAIN) return cannot("too many requests wait there: try again");
  if (is.error == EACCES || is.error == EPERM) return cannot(std::strerror(is.error) + as_who);
  if (is.error != 0) return cannot(std::strerror(is.error));
  // This process acts on the answers: it trusts only processes of its own user and of root.
  if (is.who.uid != ::geteuid() && is.who.uid != 0)
    return cannot("it runs as user " + std::to_string(is.who.uid) + as_who);
  return is.who.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, is.who.pid, 0)) : -1;
}

/// True if the file of the socket exists, but no process listens at it any more.
bool is_deserted(const std::string& path) {
  const auto address = unix_address(path);
  return address && who_listens(*address).error == ECONNREFUSED;
}

}  // namespace

/// Sends a request to the old process and returns the body of the answer; an empty text if
/// `receive` is given, which is then called with the parts of the body. Errors: a refusal, no
/// answer for 30 s, or this process is interrupted while `receive` gets the body.
Result<std::string> TakeOver::ask(const std::string& path, const Receive& receive) {
  constexpr int kAnyPort = 1;
  constexpr std::chrono::seconds kSilence{30};
  httplib::Client client(socket_, kAnyPort);
  client.set_address_family(AF_UNIX);
  client.set_read_timeout(kSilence);
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  std::string refusal;
  int status = 0;
  if (receive) {
    request.response_handler = [&status](const httplib::Response& response) {
      status = response.status;
      return true;
    };
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t,
                                   std::uint64_t) {
      if (status == 200) return receive(std::as_bytes(std::span(data, size))) && !interrupted;
      refusal.append(data, size);
      return true;
    };
  }
  const httplib::Result result = client.send(request);
  has_answered_ = static_cast<bool>(result);
  if (!result) {
    if (interrupted) return interruption();
    return std::unexpected(Error{"the running millrace gave no complete answer, try again: " +
                                 httplib::to_string(result.error())});
  }
  if (result->status == 200) return result->body;
  return std::unexpected(Error{"the running millrace does not hand over: " +
                               reason_in(receive ? refusal : result->body)});
}

Result<std::unique_ptr<TakeOver>> TakeOver::begin(const std::string& socket) {
  const auto process = process_at(socket);
  if (!process) return std::unexpected(process.error());
  if (!*process) return nullptr;
  std::unique_ptr<TakeOver> take_over(new TakeOver(socket, **process));
  const auto answer = take_over->ask("/handover?version=" + std::to_string(kCarriedVersion));
  if (!answer && take_over->is_ending()) return nullptr;
  if (!answer) return std::unexpected(answer.error());
  auto offer = offer_from(Json::parse(*answer, nullptr, false));
  if (!offer) return std::unexpected(offer.error());
  take_over->offer_ = std::move(*offer);
  return take_over;
}

TakeOver::~TakeOver() {
  if (has_ended_) {
    for (const auto& [name, settings] : offer_.to_restore) KernelInterface::set(name, settings);
  } else if (offer_.number != 0) {
    [[maybe_unused]] const auto told =
        ask("/handover/give_up?number=" + std::to_string(offer_.number));
  }
  if (process_ >= 0) ::close(process_);
}

/// Takes over the connections that have changed since the last call; in the first call all
/// connections. If `last`, the old process stops forwarding first.
Result<void> TakeOver::take_all(bool last) {
  if (interrupted) return interruption();
  if (was_cut_off_) return {};
  std::optional<Error> wrong;
  const auto told = ask(
      "/handover/connections?number=" + std::to_string(offer_.number) + (last ? "&last=true" : ""),
      [&](std::span<const std::byte> bytes) {
        if (auto ok = taking_over_->take(bytes); !ok) wrong = ok.error();
        return !wrong;
      });
  if (wrong) return std::unexpected(*wrong);
  if (told) return taking_over_->end();
  if (!is_ending()) return std::unexpected(told.error());
  was_cut_off_ = true;
  taking_over_->end_early();
  return {};
}

/// True if the last request got no answer because the old process ends. The kernel closes the
/// sockets of a killed process one after the other, so this waits for up to a second.
bool TakeOver::is_ending() const {
  constexpr std::chrono::seconds kSoon{1};
  constexpr std::chrono::milliseconds kPause{10};
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (!has_answered_ && !interrupted && std::chrono::steady_clock::now() < until) {
    if (is_deserted(socket_) || is_gone(kPause)) return true;
  }
  return false;
}

/// Takes over all connections in the first round, and in each further round those that have changed
/// meanwhile. A round is mostly shorter than the previous one, since fewer connections change in
/// it. Ends when a round has fewer than a thousand connections, or no fewer than the previous
/// round; after ten rounds at the latest.
Result<void> TakeOver::start(Workers& workers, std::shared_ptr<Owners> owners) {
  constexpr unsigned kMostTimes = 10;
  constexpr std::uint64_t kFew = 1000;
  workers_ = &workers;
  taking_over_ = std::make_unique<TakingOver>(workers, std::move(owners));
  std::uint64_t before = std::numeric_limits<std::uint64_t>::max();
  for (unsigned times = 0; times < kMostTimes; ++times) {
    if (auto ok = take_all(false); !ok) return ok;
    const std::uint64_t told = taking_over_->told();
    if (was_cut_off_ || told < kFew || told >= before) break;
    before = told;
  }
  return {};
}

Result<void> TakeOver::stop_the_other() { return take_all(true); }

/// The old process may end before it can answer. In that case the file of its socket stays, but no
/// process listens there, even while the old process still closes its devices. If the request got
/// no answer and the old process has not ended, the request is sent again, for a second.
Result<void> TakeOver::let_the_other_end() {
  constexpr std::chrono::seconds kSoon{1};
  constexpr std::chrono::milliseconds kPause{10};
  if (interrupted) return interruption();
  const std::string path = "/handover/end?number=" + std::to_string(offer_.number);
  auto ended = ask(path);
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (!ended && !is_deserted(socket_) && !is_gone(kPause)) {
    if (has_answered_ || std::chrono::steady_clock::now() >= until)
      return std::unexpected(ended.error());
    ended = ask(path);
  }
  has_ended_ = true;
  const Json last = ended ? Json::parse(*ended, nullptr, false) : Json();
  if (last.is_object()) offer_.is_active = last.value("active", offer_.is_active);
  workers_->function().take_last(ended ? &last : nullptr);
  return {};
}

bool TakeOver::is_gone(std::chrono::milliseconds within) const {
  pollfd process{.fd = process_, .events = POLLIN, .revents = 0};
  return ::poll(&process, 1, static_cast<int>(within.count())) > 0;
}

Result<void> TakeOver::wait_for_its_end() const {
  constexpr std::chrono::milliseconds kLook{100};
  constexpr int kMost = 600;
  for (int looks = 0; process_ >= 0 && looks < kMost && !is_gone(kLook); ++looks) {
    if (interrupted)
      return std::unexpected(
          Error{"interrupted: the old millrace no longer forwards and this one does not forward "
                "yet: start millrace again"});
  }
  return {};
}

void TakeOver::inherit_settings(Live& live) {
  live.devices().restore(std::exchange(offer_.to_restore, {}));
}

void TakeOver::inherit_neighbours(Live& live, const Customers& customers) const {
  const Devices& devices = live.devices();
  for (unsigned link = 0; link < devices.links(); ++link) {
    const std::string name = to_string(devices.name(link));
    for (const auto& [device, vlan, address, mac] : offer_.neighbours) {
      const Zone customer = customers.find(link, vlan);
      const bool is_on = customers.has_vlans(link) ? customer != 0 : vlan == devices.vlan(link);
      if (device == name && is_on) live.know({link, address, mac, customer});
    }
  }
}

}  // namespace millrace::cli
