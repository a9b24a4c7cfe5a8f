// One lock for all of an instance, whatever is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "conntrack/sharing/grace.h"

namespace millrace {

/// As std::shared_lock and std::unique_lock want it. Who finds it taken notes how long it waited.
class Lock {
 public:
  virtual ~Lock() = default;

  void lock() {
    if (!try_lock()) note_waiting([this] { wait(); });
  }
  void lock_shared() {
    if (!try_lock_shared()) note_waiting([this] { wait_shared(); });
  }
  virtual void unlock() = 0;
  virtual void unlock_shared() = 0;

  /// What the calling thread has waited for all such locks.
  static std::uint64_t waited_ns() { return waited(); }

 private:
  virtual bool try_lock() = 0;
  virtual bool try_lock_shared() = 0;
  /// Take it, however long that takes.
  virtual void wait() = 0;
  virtual void wait_shared() = 0;

  template <class Wait>
  static void note_waiting(Wait&& wait) {
    const auto start = std::chrono::steady_clock::now();
    wait();
    waited() += static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  }

  static std::uint64_t& waited() {
    thread_local std::uint64_t ns = 0;
    return ns;
  }
};

/// A line is compiled for it once: schemes differ in their lock.
class Locked {
 public:
  static constexpr bool kShared = true;
  using Settling = SettleAfterGrace;

  explicit Locked(std::unique_ptr<Lock> lock) : lock_(std::move(lock)) {}

  /// For stages that look up.
  std::shared_lock<Lock> reading() const { return std::shared_lock(*lock_); }
  /// For those that change.
  std::unique_lock<Lock> writing() const { return std::unique_lock(*lock_); }

  static std::uint64_t waited_ns() { return Lock::waited_ns(); }

 private:
  std::unique_ptr<Lock> lock_;
};

}  // namespace millrace
