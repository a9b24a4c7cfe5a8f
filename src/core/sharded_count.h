// How many of a kind there are, counted by all workers together, each in a line of its own: cheap
// to count, and dearer to ask only where a limit may be near.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace millrace {

/// Any thread may ask. Of one worker the count may be negative, where it tells the end of what
/// another began; so may the sum while they count, not at rest.
class ShardedCount {
 public:
  explicit ShardedCount(unsigned workers)
      : workers_(workers), counts_(std::make_unique<Count[]>(workers)) {}

  /// In that worker's count. `kShared`: others may do so at once.
  template <bool kShared>
  void add(unsigned worker, std::int64_t more) {
    auto& count = counts_[worker].of;
    if constexpr (kShared) {
      count.fetch_add(more, std::memory_order_relaxed);
    } else {
      count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
  }

  std::int64_t total() const {
    std::int64_t all = 0;
    for (unsigned n = 0; n < workers_; ++n) all += of(n);
    return all;
  }
  /// Whether one more may come, of `most`. Others may ask at once, and each bring one.
  bool has_room(std::int64_t most) const { return total() < most; }
  /// The same, cheaper: as long as `worker` keeps to its share it does not ask the others, who may
  /// have used more than theirs.
  bool has_room_or_share(unsigned worker, std::int64_t most) const {
    return of(worker) < most / workers_ || has_room(most);
  }

 private:
  struct alignas(64) Count {
    std::atomic<std::int64_t> of = 0;
  };

  std::int64_t of(unsigned worker) const {
    return counts_[worker].of.load(std::memory_order_relaxed);
  }

  unsigned workers_;
  std::unique_ptr<Count[]> counts_;
};

}  // namespace millrace
