// The fragments of both address families: which datagram each belongs to, and whose key it has.
// Shared by all workers whose clocks agree, under one lock.
//
// Fragments are rare, and a worker holds the lock for one burst's fragments. Whichever worker gets
// a fragment looks here, so that no packet has to reach a certain worker before its key is known,
// and the bounds hold for the process.
//
// Any thread may call `is_keeping` and `report`. All other functions need the lock (`lock`).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/of_family.h"
#include "fragments/datagrams.h"

namespace millrace {

/// Fill and memory of a table.
struct FragmentReport {
  std::size_t datagrams = 0;  ///< remembered
  std::size_t kept = 0;       ///< fragments that wait for their datagram's first one
  std::size_t memory_bytes = 0;
};

class FragmentTable {
 public:
  /// All memory is allocated here. `secret` keys the hashes of datagrams and sources.
  explicit FragmentTable(const Secret& secret) : v4_(secret), v6_(secret) {}

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// True if fragments are kept, so that time must pass for them.
  bool is_keeping() const { return keeps_.load(std::memory_order_relaxed); }

  template <class K>
  typename Datagrams<K>::Answer take(const typename Datagrams<K>::Arrival& arrival, Tick now,
                                     std::vector<ReleasedFragment>& released) {
    const auto answer = of<K>().take(arrival, now, released);
    note();
    return answer;
  }
  template <class K>
  const Datagrams<K>& datagrams() const {
    return of_family<K>(v4_, v6_);
  }
  /// Forgets some of the datagrams that are too old.
  void expire(Tick now, std::vector<ReleasedFragment>& released) {
    v4_.expire(now, kExpiredAtOnce, released);
    v6_.expire(now, kExpiredAtOnce, released);
    note();
  }
  /// Forgets all kept fragments.
  void give_up(std::vector<ReleasedFragment>& released) {
    v4_.give_up(released);
    v6_.give_up(released);
    note();
  }
  FragmentReport report() const {
    const std::lock_guard lock(mutex_);
    return {v4_.size() + v6_.size(), v4_.kept() + v6_.kept(),
            v4_.memory_bytes() + v6_.memory_bytes()};
  }

 private:
  static constexpr unsigned kExpiredAtOnce = 64;

  template <class K>
  Datagrams<K>& of() {
    return of_family<K>(v4_, v6_);
  }
  /// Writes only what changes, since all workers read it once a burst.
  void note() {
    const bool keeps = v4_.kept() + v6_.kept() != 0;
    if (keeps != is_keeping()) keeps_.store(keeps, std::memory_order_relaxed);
  }

  alignas(64) std::atomic<bool> keeps_ = false;
  Datagrams<KeyV4> v4_;
  alignas(64) mutable std::mutex mutex_;
  Datagrams<KeyV6> v6_;
};

}  // namespace millrace
