// One lock for all of an instance, whatever is done.
#pragma once

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
    if (!try_lock()) wait();
  }
  void lock_shared() {
    if (!try_lock_shared()) wait_shared();
  }
  virtual void unlock() = 0;
  virtual void unlock_shared() = 0;

 private:
  virtual bool try_lock() = 0;
  virtual bool try_lock_shared() = 0;
  /// Take it, however long that takes, which detail::Waiting is told.
  virtual void wait() = 0;
  virtual void wait_shared() = 0;
};

/// A line is compiled for it once: schemes differ in their lock.
class Locked {
 public:
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = false;
  using Settling = SettleAfterGrace;

  explicit Locked(std::unique_ptr<Lock> lock) : lock_(std::move(lock)) {}

  std::shared_lock<Lock> reading() const { return std::shared_lock(*lock_); }
  std::unique_lock<Lock> writing() const { return std::unique_lock(*lock_); }

 private:
  std::unique_ptr<Lock> lock_;
};

static_assert(Guards<Locked>);

}  // namespace millrace
