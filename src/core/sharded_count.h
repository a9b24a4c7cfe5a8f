// A count that all workers write, each in a cache line of its own. Counting is cheap; reading the
// sum costs more, and is needed only when a limit may be near.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace millrace {

/// Any thread may read. A worker's count may be negative: another worker may have counted the
/// beginning of a connection whose end this worker counts. The sum may be negative while workers
/// count.
class ShardedCount {
 public:
  explicit ShardedCount(unsigned workers)
      : workers_(workers), counts_(std::make_unique<Count[]>(workers)) {}

  /// Adds `more` to the count of `worker`. Several threads may add to one count at once only with
  /// `kShared`.
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
  /// True if the sum is below `most`. Several threads may see and use the same room at once.
  bool has_room(std::int64_t most) const { return total() < most; }
  /// True if `worker` has counted less than its share, which is `most` / number of workers, or if
  /// the sum is below `most`. Cheaper than `has_room`: for a worker below its share the other
  /// counts are not read. The result is therefore true for such a worker even if the sum has
  /// reached `most`.
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
