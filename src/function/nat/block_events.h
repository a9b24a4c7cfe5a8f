// The records of port blocks on their way from the workers to the log (block_log.h): a bounded
// queue of any number of writers and one reader (D. Vyukov's bounded MPMC queue).
//
// 1. `note` never blocks, allocates or makes a system call, except in a replay (`Policy::waits`).
// 2. Nothing is overwritten. A record that finds no room is counted as lost, or the block does not
//    change its customer (`Policy::refuses`).
// 3. Records of one block have the order in which it changed its customers, whichever workers
//    they come from: the caller of `note` has the block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "function/event_log.h"
#include "millrace/types.h"

namespace millrace {

/// A block that a customer gets, or loses.
struct BlockEvent {
  std::uint64_t time_ms = 0;  ///< since 1970
  std::uint32_t block = 0;
  std::uint32_t customer = 0;
  bool is_allocated = false;  ///< false: the customer loses the block
};

class BlockEvents {
 public:
  static constexpr std::size_t kRoom = std::size_t{1} << 16;

  struct Policy {
    bool refuses = false;          ///< true: no block without its record
    std::uint64_t capture_ms = 0;  ///< in a replay: the time of tick 0 since 1970, else 0

    /// True: the worker waits for room, since a replay may wait, and its log is to be whole.
    bool waits() const { return capture_ms != 0; }
    std::uint64_t time_ms(Tick now) const {
      return capture_ms != 0 ? capture_ms + now.ms : wall_time_ns() / 1'000'000;
    }
  };

  /// Begins to keep records. Called before workers run.
  void open(const Policy& policy) {
    policy_ = policy;
    places_ = std::vector<Place>(kRoom);
    for (std::size_t n = 0; n < kRoom; ++n) places_[n].turn.store(n, std::memory_order_relaxed);
  }
  const Policy& policy() const { return policy_; }

  /// Records that a block gets or loses its customer. False: there can be no record, and the block
  /// must stay as it is. Called by any worker, under the lock of the customer's bucket.
  bool note(bool is_allocated, std::uint32_t block, std::uint32_t customer, Tick now) {
    if (places_.empty()) return true;
    if (policy_.refuses && is_failing_.load(std::memory_order_relaxed)) return false;
    const BlockEvent event{policy_.time_ms(now), block, customer, is_allocated};
    while (!push(event)) {
      if (policy_.waits()) {
        std::this_thread::yield();
        continue;
      }
      if (policy_.refuses) return false;
      lost_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    return true;
  }

  /// Records that a customer has lost a block, whatever the policy.
  void note_loss(std::uint32_t block, std::uint32_t customer, Tick now) {
    if (places_.empty()) return;
    if (!push({policy_.time_ms(now), block, customer, false}))
      lost_.fetch_add(1, std::memory_order_relaxed);
  }

  /// True if all records have been taken. Any thread may ask.
  bool is_empty() const {
    return taken_.load(std::memory_order_acquire) == written_.load(std::memory_order_acquire);
  }

  /// @name Called by the log's thread
  /// @{
  /// Takes the oldest record. False: there is none.
  bool take(BlockEvent& event) {
    const std::uint64_t at = taken_.load(std::memory_order_relaxed);
    Place& place = places_[at % kRoom];
    if (place.turn.load(std::memory_order_acquire) != at + 1) return false;
    event = place.event;
    place.turn.store(at + kRoom, std::memory_order_release);
    taken_.store(at + 1, std::memory_order_release);
    return true;
  }
  /// Returns the number of records that have found no room.
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  /// Says whether records can be written at present.
  void set_failing(bool is) { is_failing_.store(is, std::memory_order_relaxed); }
  /// @}

 private:
  struct Place {
    /// n: free for the writer with number n. n + 1: has the record of that number.
    std::atomic<std::uint64_t> turn = 0;
    BlockEvent event;
  };

  bool push(const BlockEvent& event) {
    std::uint64_t at = written_.load(std::memory_order_relaxed);
    for (;;) {
      Place& place = places_[at % kRoom];
      const std::uint64_t turn = place.turn.load(std::memory_order_acquire);
      if (turn < at) return false;  // the record of the previous round is still there
      if (turn > at) {
        at = written_.load(std::memory_order_relaxed);
      } else if (written_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        place.event = event;
        place.turn.store(at + 1, std::memory_order_release);
        return true;
      }
    }
  }

  alignas(64) std::atomic<std::uint64_t> written_ = 0;
  std::atomic<std::uint64_t> lost_ = 0;
  Policy policy_;
  std::vector<Place> places_;  // empty: there is no log
  std::atomic<bool> is_failing_ = false;
  alignas(64) std::atomic<std::uint64_t> taken_ = 0;  // by the log's thread
};

}  // namespace millrace
