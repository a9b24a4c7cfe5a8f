// The budget of connections that nothing has proved yet to be real: what anybody can make with one
// packet each. Workers over the same tables have one together, and count on their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace millrace {

class HalfOpen {
 public:
  HalfOpen(std::size_t most, unsigned workers)
      : most_(static_cast<std::int64_t>(most)),
        workers_(workers),
        counts_(std::make_unique<Count[]>(workers)) {}

  /// `owner` opened the connection; whoever finds out more about it tells. `kShared`: others may do
  /// so at once.
  template <bool kShared>
  void add(unsigned owner, std::int64_t more) {
    auto& count = counts_[owner].of;
    if constexpr (kShared) {
      count.fetch_add(more, std::memory_order_relaxed);
    } else {
      count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
  }

  /// Whether `worker` may open one more; what others open meanwhile may come on top.
  bool has_room(unsigned worker) const {
    // As long as it keeps to its own share, a worker need not ask the others.
    if (of(worker) < most_ / workers_) return true;
    std::int64_t all = 0;
    for (unsigned n = 0; n < workers_; ++n) all += of(n);
    return all < most_;
  }

 private:
  struct alignas(64) Count {
    std::atomic<std::int64_t> of = 0;
  };

  std::int64_t of(unsigned worker) const {
    return counts_[worker].of.load(std::memory_order_relaxed);
  }

  std::int64_t most_;
  unsigned workers_;
  std::unique_ptr<Count[]> counts_;
};

}  // namespace millrace
