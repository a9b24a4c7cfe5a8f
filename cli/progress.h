// Shows on standard error, on a terminal only, how far long work has come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace millrace::cli {

class Progress {
 public:
  /// Until it is destroyed, `done()` is asked five times a second, on another thread, how many
  /// packets of `total` are done. Nothing is shown where `quiet`.
  Progress(bool quiet, std::string what, std::uint64_t total, std::function<std::uint64_t()> done);

 private:
  std::jthread thread_;
};

}  // namespace millrace::cli
