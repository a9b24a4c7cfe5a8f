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

namespace millrace::cli {

/// Handlers are set before `start`; they are called by several threads at once.
class UnixHttp : public httplib::Server {
 public:
  /// Requests that are answered at once; others wait in order.
  static constexpr std::size_t kThreads = 32;
  static constexpr int kWaiting = 1024;

  UnixHttp();
  /// Ends all answers, however slow their readers are, and removes the socket if it is still there.
  ~UnixHttp() override;
  UnixHttp(const UnixHttp&) = delete;
  UnixHttp& operator=(const UnixHttp&) = delete;

  /// Serves, on threads of its own, at a path of which nobody else makes use; what a killed process
  /// left there goes. Errors: somebody else has it (failed), unless this one `replaces` it; it
  /// cannot be made (unreadable).
  Result<void> start(const std::string& path, bool replaces);
  bool is_ending() const { return is_ending_; }

 private:
  bool bind();

  std::string path_;
  std::string bound_;                            // the path that it had first
  std::optional<std::pair<dev_t, ino_t>> file_;  // device and number
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> has_ended_ = false;
  std::jthread thread_;
};

}  // namespace millrace::cli
