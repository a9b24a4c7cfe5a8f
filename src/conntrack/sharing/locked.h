// Guards with one lock around the whole table.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "conntrack/sharing/grace.h"

namespace millrace {

/// A lock for std::shared_lock and std::unique_lock. A thread that has to wait for it counts the
/// waiting time (detail::Waiting).
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
  /// Takes the lock exclusively, and counts the waiting time.
  virtual void wait() = 0;
  /// Takes the lock in shared mode, and counts the waiting time.
  virtual void wait_shared() = 0;
};

/// Guards of one lock, shared for lookups and exclusive for changes. The lock is virtual, so that
/// the line is compiled once for all locks.
class Locked {
 public:
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = false;
  using Reclaiming = ReclaimAfterGrace;

  explicit Locked(std::unique_ptr<Lock> lock) : lock_(std::move(lock)) {}

  std::shared_lock<Lock> reading() const { return std::shared_lock(*lock_); }
  std::unique_lock<Lock> writing() const { return std::unique_lock(*lock_); }

 private:
  std::unique_ptr<Lock> lock_;
};

static_assert(Guards<Locked>);

}  // namespace millrace
