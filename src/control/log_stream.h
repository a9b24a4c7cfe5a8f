// Sends a function's log (function/event_log.h) to a client of the control socket, as lines of
// JSON. The server's threads call these functions, several at once.
#pragma once

#include <memory>
#include <semaphore>

#include "control/unix_http.h"
#include "function/deployment.h"
#include "function/event_log.h"

namespace millrace {

/// Limits how many clients read logs at once: each keeps one of the server's threads
/// (`UnixHttp::kThreads`), also while it does not read.
class LogPlaces {
 public:
  static constexpr int kMost = 8;

  /// Returns a place, which is free again once the last copy of the pointer is gone. Errors:
  /// `not_now` (all places are taken).
  CommandResult<std::shared_ptr<void>> take();

 private:
  std::counting_semaphore<> free_{kMost};
};

/// Answers with the events that the reader finds, and with `follows` also with all later ones,
/// until the client or the server ends. A client that stops reading stays connected, and misses
/// events meanwhile. `place` is kept until the end.
void send_log(httplib::Response& response, const UnixHttp& http, std::shared_ptr<void> place,
              std::unique_ptr<LogReader> reader, bool follows);

}  // namespace millrace
