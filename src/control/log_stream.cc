#include "control/log_stream.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace millrace {
namespace {

/// Waits until the client can take more, however long it does not read. False: the client is gone,
/// or the server ends. The client then takes the text of `LogReader::kMost` events at once: the
/// kernel calls a Unix socket writable while three quarters of its buffer are free.
bool wait_until_writable(const httplib::DataSink& sink, const UnixHttp& http) {
  using Clock = std::chrono::steady_clock;
  for (;;) {
    const auto start = Clock::now();
    if (sink.is_writable()) return true;
    // The library waits for seconds for a client that does not read, but not for one that is gone.
    if (http.is_ending() || Clock::now() - start < std::chrono::seconds(1)) return false;
  }
}

}  // namespace

CommandResult<std::shared_ptr<void>> LogPlaces::take() {
  if (!free_.try_acquire()) {
    return std::unexpected(Refusal{Refusal::Kind::not_now,
                                   std::to_string(kMost) + " programs read logs: end one of them"});
  }
  return std::shared_ptr<void>(this, [this](void*) { free_.release(); });
}

void send_log(httplib::Response& response, const UnixHttp& http, std::shared_ptr<void> place,
              std::unique_ptr<LogReader> reader, bool follows) {
  const auto send = [&http, place = std::move(place),
                     reader = std::shared_ptr<LogReader>(std::move(reader)),
                     follows](std::size_t, httplib::DataSink& sink) {
    constexpr std::chrono::milliseconds kPause{10};
    std::string text;
    for (;;) {
      // Read before the events, so that none of those before the end is left out.
      const bool is_last = !follows || http.is_ending();
      text.clear();
      reader->append(text);
      if (!wait_until_writable(sink, http)) return false;
      if (!text.empty()) {
        if (!sink.write(text.data(), text.size())) return false;
      } else if (is_last) {
        break;
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
    sink.done();
    return true;
  };
  response.set_chunked_content_provider("application/x-ndjson", send);
}

}  // namespace millrace
