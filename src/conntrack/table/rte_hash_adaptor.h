// DPDK's rte_hash behind a class without DPDK's types.
//
// The table allocates from a heap of its own over one `Memory`, an external heap in DPDK's terms.
// Its memory therefore lies on the same pages as any other table's, whatever EAL was started with,
// is counted exactly, and returns to the system with the table. DPDK has room for 32 heaps, of
// which each NUMA node takes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "millrace/hash.h"
#include "millrace/memory.h"
#include "millrace/types.h"

struct rte_hash;

namespace millrace {

/// Flags of rte_hash, `RTE_HASH_EXTRA_FLAGS_*`. They may be combined.
struct RteHashFlags {
  static constexpr std::uint8_t kNone = 0x00;
  /// Other threads may look up while one thread changes the table, under a reader-writer lock.
  static constexpr std::uint8_t kReadersAndWriter = 0x04;
  /// A full bucket gets a further bucket chained to it.
  static constexpr std::uint8_t kExtendable = 0x08;
  /// A removed key's position stays taken until `release`.
  static constexpr std::uint8_t kReleaseLater = 0x10;
  /// Other threads may look up while one thread changes the table, without a lock.
  static constexpr std::uint8_t kLockFreeReaders = 0x20;
};

/// A set of keys of one size. Each key has a position, its `ConnId`, which does not change while
/// the key is in the set. Thread rule: one thread at a time; with `kReadersAndWriter` or
/// `kLockFreeReaders`, other threads may call `find` meanwhile. Movable, not copyable.
class RteHash {
 public:
  static constexpr std::size_t kBucketSlots = 8;

  /// Makes an empty set. `slots` must be a power of two, 8 or more. Positions are 0 to `slots - 2`,
  /// given out in the order in which they became free. Errors (failed): no memory, or no heap is
  /// left.
  static Result<RteHash> create(std::size_t slots, std::size_t key_bytes, std::uint8_t flags,
                                Pages pages);
  /// Returns the largest number of slots that rte_hash can address: it computes the offset of a key
  /// in 32 bits.
  static std::size_t max_slots(std::size_t key_bytes);

  RteHash(RteHash&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)),
        heap_(std::move(other.heap_)),
        memory_(std::move(other.memory_)),
        slots_(other.slots_) {}
  RteHash& operator=(RteHash&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(heap_, other.heap_);
    std::swap(memory_, other.memory_);
    std::swap(slots_, other.slots_);
    return *this;
  }
  ~RteHash();

  /// Sets `ids[i]` to the position of key i, at `keys + i * stride`, or none.
  void find(const void* keys, std::size_t stride, std::span<const Hash> hashes,
            std::span<ConnId> ids) const;
  /// Adds a key, if it is not in the set. Returns its position, or none if the set is full.
  ConnId add(const void* key, Hash hash);
  /// Removes a key. Returns the position that it had, or none.
  ConnId remove(const void* key, Hash hash);
  /// Makes a removed key's position reusable; only with `kReleaseLater`.
  void release(ConnId id);

  /// Calls `visit(id)` for the keys in the two buckets of the hash, without chained buckets.
  template <class Visit>
  void for_each_candidate(Hash hash, Visit&& visit) const {
    const std::uint32_t first = signature(hash) & (buckets() - 1);
    const std::uint32_t second = (first ^ signature(hash) >> 16) & (buckets() - 1);
    for (const std::uint32_t bucket : {first, second}) {
      Step step{.next = bucket * static_cast<std::uint32_t>(kBucketSlots)};
      const std::uint32_t end = step.next + static_cast<std::uint32_t>(kBucketSlots);
      while (advance(step), step.next <= end && step.id != ConnId::none) visit(step.id);
    }
  }

  /// Returns the number of positions in use. A removed key's position counts until it is reusable.
  std::size_t taken() const;
  std::size_t slots() const { return slots_; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

 private:
  /// The position of an iteration over the slots.
  struct Step {
    std::uint32_t next = 0;
    ConnId id = ConnId::none;
  };

  RteHash(std::string heap, Memory memory, std::size_t slots)
      : heap_(std::move(heap)), memory_(std::move(memory)), slots_(slots) {}

  bool own_heap();
  void advance(Step& step) const;
  std::uint32_t buckets() const { return static_cast<std::uint32_t>(slots_ / kBucketSlots); }
  /// Returns the 32 bits that rte_hash uses as its hash. The lower bits pick the first bucket. The
  /// upper 16 bits are the tag and, XORed to the first bucket, pick the second.
  static std::uint32_t signature(Hash hash) { return static_cast<std::uint32_t>(hash); }

  rte_hash* table_ = nullptr;
  std::string heap_;  // name of the table's heap, 31 characters at most
  Memory memory_;
  std::size_t slots_ = 0;
};

}  // namespace millrace
