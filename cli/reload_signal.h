// SIGHUP: a running dataplane reads its configuration again.
#pragma once

#include <functional>
#include <thread>

namespace millrace::cli {

class ReloadSignal {
 public:
  /// Before any thread is started: from now on SIGHUP waits for somebody to take it.
  static void block();

  /// After `block`. Takes it, on a thread of its own, and calls `reload` for each that comes.
  explicit ReloadSignal(std::function<void()> reload);
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace millrace::cli
