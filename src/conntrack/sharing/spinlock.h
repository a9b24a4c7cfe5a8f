// `spinlock`: one table for all workers, and one spinlock: test and test-and-set (Rudolph and
// Segall, ISCA 1984). A thread that waits long yields its processor, which the holder of the lock
// may need.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "conntrack/sharing/locked.h"

namespace millrace {

class SpinlockLock final : public Lock {
 public:
  void unlock() override { taken_.store(false, std::memory_order_release); }
  void unlock_shared() override { unlock(); }

 private:
  bool try_lock() override { return !taken_.exchange(true, std::memory_order_acquire); }
  bool try_lock_shared() override { return try_lock(); }
  void wait() override {
    detail::Backoff backoff;
    do {
      while (taken_.load(std::memory_order_relaxed)) backoff.wait();
    } while (!try_lock());
  }
  void wait_shared() override { wait(); }

  alignas(64) std::atomic<bool> taken_ = false;
};

struct Spinlock {
  static constexpr std::string_view kName = "spinlock";
  static constexpr std::string_view kSummary = "one table for all workers, one spinlock";
  using Guards = Locked;
  template <class Table>
  using Form = Table;
  static Guards create() { return Locked(std::make_unique<SpinlockLock>()); }
};

}  // namespace millrace
