// `mutex`: one table for all workers, and one std::shared_mutex: shared for lookups, exclusive for
// changes.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string_view>

#include "conntrack/sharing/locked.h"

namespace millrace {

class SharedMutexLock final : public Lock {
 public:
  void unlock() override { mutex_.unlock(); }
  void unlock_shared() override { mutex_.unlock_shared(); }

 private:
  bool try_lock() override { return mutex_.try_lock(); }
  bool try_lock_shared() override { return mutex_.try_lock_shared(); }
  void wait() override {
    const detail::Waiting waiting;
    mutex_.lock();
  }
  void wait_shared() override {
    const detail::Waiting waiting;
    mutex_.lock_shared();
  }

  alignas(64) std::shared_mutex mutex_;
};

struct Mutex {
  static constexpr std::string_view kName = "mutex";
  static constexpr std::string_view kSummary =
      "one table for all workers, one mutex: shared to look up, exclusive to change";
  using Guards = Locked;
  template <class Table>
  using Form = Table;
  static Guards create() { return Locked(std::make_unique<SharedMutexLock>()); }
};

}  // namespace millrace
