// Guards of tables that are safe for readers beside one writer: a spinlock for the writers.
#pragma once

#include <memory>
#include <mutex>

#include "conntrack/sharing/grace.h"
#include "conntrack/sharing/spinlock.h"

namespace millrace {

class OneWriter {
 public:
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = true;
  using Reclaiming = ReclaimAfterGrace;

  struct Guard {};
  static Guard reading() { return {}; }
  std::unique_lock<Lock> writing() const { return std::unique_lock<Lock>(*lock_); }

 private:
  std::unique_ptr<Lock> lock_ = std::make_unique<SpinlockLock>();
};

static_assert(Guards<OneWriter>);

}  // namespace millrace
