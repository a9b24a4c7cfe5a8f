// HTTP over a Unix socket that only its owner may open: cpp-httplib's server, with what a Unix
// socket needs besides.
#pragma once

#include <httplib.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "millrace/types.h"

namespace millrace {

/// An HTTP server. Its handlers must be set before `start`; several threads call them at once.
class UnixHttp : public httplib::Server {
 public:
  /// Requests that are answered at the same time; further ones wait in order.
  static constexpr std::size_t kThreads = 32;
  /// Largest body of a request in bytes.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  /// Connections that may wait until they are accepted.
  static constexpr int kWaiting = 1024;

  UnixHttp();
  /// Ends all answers, however slow their readers are, and removes the socket file if it is still
  /// this server's.
  ~UnixHttp() override;
  UnixHttp(const UnixHttp&) = delete;
  UnixHttp& operator=(const UnixHttp&) = delete;

  /// Makes the socket at `path`; replaces one that a killed process left there. Clients that
  /// connect wait until `start`. With `replaces`, another process keeps its socket at `path`, and
  /// this server's is at `PATH.new` until `take_place`; one process at a time can have it. Errors:
  /// failed (another process has the socket), unreadable (the socket cannot be made).
  Result<void> bind(const std::string& path, bool replaces);
  /// Serves from now on, on threads of its own. Errors: failed (no more threads).
  Result<void> start();
  /// Moves the socket to `path`: clients that connect there are served from now on. Errors:
  /// unreadable (the other process's socket stays).
  Result<void> take_place();
  /// Leaves the socket file in place when the server ends.
  void leave() { file_.reset(); }
  bool is_ending() const { return is_ending_; }

 private:
  bool bind_and_listen();
  std::unexpected<Error> cannot_listen() const;

  std::string path_;
  std::string bound_;                            // path at which the socket was made
  std::string is_there_;                         // current path of the socket
  std::optional<std::pair<dev_t, ino_t>> file_;  // device and inode of the socket file
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> has_ended_ = false;
  std::jthread thread_;
};

}  // namespace millrace
