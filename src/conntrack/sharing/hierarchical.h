// `hierarchical`: one `chained` table for all workers, and locks of three levels, as FastClick's
// table has them (HPSR'21, section III.C): of the table, for its pool of ids; of a bucket, shared
// to follow its chain and exclusive to change it; and of an entry, from its insertion until its
// connection is confirmed, which is its record's mark (tracker.h). Who holds a bucket's may take
// the table's; nobody holds two buckets'.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "conntrack/sharing/unguarded.h"
#include "conntrack/table/chained.h"
#include "conntrack/table_scheme.h"
#include "millrace/detail/waiting.h"

namespace millrace {

/// A reader-writer spinlock, as std::shared_lock and std::unique_lock want it. No fairness: it is
/// held for some steps along a chain.
class SharedSpinlock {
 public:
  void lock() {
    detail::Backoff backoff;
    for (std::uint32_t free = 0;
         !holders_.compare_exchange_weak(free, kWriter, std::memory_order_acquire); free = 0) {
      while (holders_.load(std::memory_order_relaxed) != 0) backoff.wait();
    }
  }
  void unlock() { holders_.store(0, std::memory_order_release); }
  void lock_shared() {
    detail::Backoff backoff;
    std::uint32_t readers = holders_.load(std::memory_order_relaxed);
    do {
      for (; readers == kWriter; readers = holders_.load(std::memory_order_relaxed)) backoff.wait();
    } while (!holders_.compare_exchange_weak(readers, readers + 1, std::memory_order_acquire));
  }
  void unlock_shared() { holders_.fetch_sub(1, std::memory_order_release); }

 private:
  static constexpr std::uint32_t kWriter = 1U << 31;

  std::atomic<std::uint32_t> holders_ = 0;  // readers, or kWriter
};

struct TableAndBucketLocks {
  static constexpr bool kShared = true;
  using Bucket = SharedSpinlock;
  using Table = SharedSpinlock;
};

struct Hierarchical {
  static constexpr std::string_view kName = "hierarchical";
  static constexpr std::string_view kSummary =
      "one chained table for all workers: locks of the table, of buckets, of entries";
  using Guards = Unguarded;
  template <class K>
  using Shared = BasicChained<K, TableAndBucketLocks>;
  template <class Table>
  using Form =
      std::conditional_t<std::is_same_v<Table, TableScheme<Chained>>, TableScheme<Shared>, void>;
  static Guards create() { return {}; }
};

}  // namespace millrace
