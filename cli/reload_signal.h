// SIGHUP makes a running dataplane read its configuration again.
#pragma once

#include <functional>
#include <thread>

namespace millrace::cli {

class ReloadSignal {
 public:
  /// Blocks SIGHUP, so that it stays pending until the thread of a `ReloadSignal` receives it. To
  /// be called before any thread is started.
  static void block();

  /// Starts a thread that receives SIGHUP and calls `reload` each time. To be called after `block`.
  explicit ReloadSignal(std::function<void()> reload);
  /// Ends the thread, after the reload that is under way.
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace millrace::cli
