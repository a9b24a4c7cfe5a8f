// `spinlock`: one table for all workers, and one spinlock: test and test-and-set (Rudolph and
// Segall, ISCA 1984). Who waits long gives its processor to another: the holder may be without one.
#pragma once

#include <atomic>
#include <string_view>
#include <thread>

#include "conntrack/sharing/locked.h"

namespace millrace {

class SpinlockLock final : public Lock {
 public:
  void unlock() override { taken_.store(false, std::memory_order_release); }
  void unlock_shared() override { unlock(); }

 private:
  static constexpr unsigned kPatience = 1024;

  bool try_lock() override { return !taken_.exchange(true, std::memory_order_acquire); }
  bool try_lock_shared() override { return try_lock(); }
  void wait() override {
    for (unsigned tries = 0; !try_lock();) {
      while (taken_.load(std::memory_order_relaxed)) {
        if (++tries % kPatience == 0) std::this_thread::yield();
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
      }
    }
  }
  void wait_shared() override { wait(); }

  alignas(64) std::atomic<bool> taken_ = false;
};

struct Spinlock {
  static constexpr std::string_view kName = "spinlock";
  static constexpr std::string_view kSummary = "one table for all workers, one spinlock";
  using Guards = Locked;
  static Guards create() { return Locked(std::make_unique<SpinlockLock>()); }
};

}  // namespace millrace
