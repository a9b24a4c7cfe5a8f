// A mutex that threads get in the order in which they asked for it. A thread that releases it and
// wants it again at once waits behind all others, which std::mutex does not promise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace millrace {

/// Any thread may lock it. Dearer than std::mutex: for what is asked a few times a second.
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
  std::uint64_t asked_ = 0;  // how often; the next one's number
  std::uint64_t released_ = 0;
};

}  // namespace millrace
