// Shows the progress of long work on standard error, on a terminal only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace millrace::cli {

class Progress {
 public:
  /// Shows `what` and the progress until this object is destroyed. `done()` returns how many of
  /// `total` packets are done; a thread of this object calls it five times a second. Shows nothing
  /// if `quiet`.
  Progress(bool quiet, std::string what, std::uint64_t total, std::function<std::uint64_t()> done);

 private:
  std::jthread thread_;
};

}  // namespace millrace::cli
