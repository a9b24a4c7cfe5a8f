// `hierarchical`: one `chained` table for all workers, and locks of three levels, as in FastClick's
// table (HPSR'21, section III.C). The lock of the table guards its pool of ids. The lock of a
// bucket is shared for a search of its chain and exclusive for a change. The lock of an entry is
// the value `kUnconfirmed` in the record's `peer` (tracker.h): it lasts from the entry's insertion
// until the connection is confirmed. A thread that holds the lock of a bucket may take the lock of
// the table; no thread holds the locks of two buckets.
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

/// A reader-writer spinlock for std::shared_lock and std::unique_lock. It is not fair, and need not
/// be: a thread holds it for a few steps along a chain only.
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

  std::atomic<std::uint32_t> holders_ = 0;  // number of readers, or kWriter
};

/// The locks of `chained` in this scheme.
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
