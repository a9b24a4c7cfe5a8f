// SIGHUP makes a running dataplane read its configuration again. Between signals, the thread that
// waits for them looks after what goes on.
#pragma once

#include <functional>
#include <thread>

namespace millrace::cli {

class ReloadSignal {
 public:
  /// Blocks SIGHUP, so that it stays pending until the thread of a `ReloadSignal` receives it. To
  /// be called before any thread is started.
  static void block();

  /// Starts a thread that receives SIGHUP and calls `reload` each time, and else `look` once a
  /// second. To be called after `block`.
  ReloadSignal(std::function<void()> reload, std::function<void()> look);
  /// Ends the thread, after the call that is under way.
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace millrace::cli
