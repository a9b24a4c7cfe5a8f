// A mutex that threads lock in the order in which they asked for it. A thread that unlocks the
// mutex and asks for it again at once waits behind all threads that asked before, which std::mutex
// does not promise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace millrace {

/// Any thread may lock it. Slower than std::mutex: meant for a few locks a second.
class FairMutex {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const std::uint64_t mine = asked_++;
    turn_.wait(guard, [&] { return released_ == mine; });
  }
  void unlock() {
    const std::lock_guard guard(mutex_);
    ++released_;
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t asked_ = 0;     // calls of `lock` so far: the number of the next call
  std::uint64_t released_ = 0;  // calls of `unlock` so far: the number of the call that may go on
};

}  // namespace millrace
