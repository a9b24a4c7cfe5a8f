// HTTP over a Unix socket that only its owner may open: cpp-httplib's server, and what that takes
// beside it.
#pragma once

#include <httplib.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "millrace/types.h"

namespace millrace {

/// Handlers are set before `start`; they are called by several threads at once.
class UnixHttp : public httplib::Server {
 public:
  /// Requests that are answered at once; others wait in order. None has a body.
  static constexpr std::size_t kThreads = 32;
  static constexpr std::size_t kMostBytes = 4096;
  static constexpr int kWaiting = 1024;

  UnixHttp();
  /// Ends all answers, however slow their readers are, and removes the socket if it is still its
  /// own.
  ~UnixHttp() override;
  UnixHttp(const UnixHttp&) = delete;
  UnixHttp& operator=(const UnixHttp&) = delete;

  /// Has the socket at `path`, of which nobody else makes use; what a killed process left there
  /// goes. Who asks waits until `start`. One that `replaces` another's socket has it beside it
  /// until `take_place`; only one at a time can. Errors: somebody else has it (failed); it cannot
  /// be made (unreadable).
  Result<void> bind(const std::string& path, bool replaces);
  /// Serves, on threads of its own. Error (failed): there are too many threads.
  Result<void> start();
  /// Who asks at `path` is served from now on. Error (unreadable): the other one's socket stays.
  Result<void> take_place();
  /// The socket stays when it ends.
  void leave() { file_.reset(); }
  bool is_ending() const { return is_ending_; }

 private:
  bool bind_and_listen();
  std::unexpected<Error> cannot_listen() const;

  std::string path_;
  std::string bound_;                            // the path that it has first
  std::string is_there_;                         // the one that it has now
  std::optional<std::pair<dev_t, ino_t>> file_;  // device and number
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> has_ended_ = false;
  std::jthread thread_;
};

}  // namespace millrace
