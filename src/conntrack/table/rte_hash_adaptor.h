// DPDK's rte_hash behind a class that shows none of DPDK's types.
//
// Its memory is a heap of its own over one `Memory`, which DPDK calls external: so it lies on the
// same pages as that of any other table, whatever EAL was started with, is counted exactly, and
// goes back to the system with the table. DPDK has room for 32 heaps less one a NUMA node.
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

/// How rte_hash works; values may be added up. They are its own `RTE_HASH_EXTRA_FLAGS_*`.
struct RteHashFlags {
  static constexpr std::uint8_t kNone = 0x00;
  /// Others may look up while one changes: a reader-writer lock sees to that.
  static constexpr std::uint8_t kReadersAndWriter = 0x04;
  /// A full bucket gets another one chained to it.
  static constexpr std::uint8_t kExtendable = 0x08;
  /// A removed key's position stays taken until `release`.
  static constexpr std::uint8_t kReleaseLater = 0x10;
  /// Others may look up while one changes, without a lock.
  static constexpr std::uint8_t kLockFreeReaders = 0x20;
};

/// Keys of one size, each at a position: its `ConnId`, which holds while it is in here. One thread
/// at a time; with the flags that say so, others may call `find` meanwhile. Movable; one owner.
class RteHash {
 public:
  static constexpr std::size_t kBucketSlots = 8;

  /// `slots` is a power of two, 8 or more; positions are 0 to `slots - 2`, given out in the order
  /// in which they became free.
  static Result<RteHash> create(std::size_t slots, std::size_t key_bytes, std::uint8_t flags,
                                Pages pages);
  /// The most slots that it addresses: it computes a key's place in 32 bits.
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

  /// Key i stands at `keys + i * stride`; `ids[i]` becomes its position, or none.
  void find(const void* keys, std::size_t stride, std::span<const Hash> hashes,
            std::span<ConnId> ids) const;
  /// The position that the key has, or has now; none where no place is left.
  ConnId add(const void* key, Hash hash);
  /// The position that the key had, or none.
  ConnId remove(const void* key, Hash hash);
  /// Lets a removed key's position be given out again (with `kReleaseLater`).
  void release(ConnId id);

  /// Calls `visit(id)` for the keys in the two buckets that the hash may go to, chains aside.
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

  /// Taken positions; removed ones count until they can be given out again.
  std::size_t taken() const;
  std::size_t slots() const { return slots_; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

 private:
  /// Where an iteration over the slots stands.
  struct Step {
    std::uint32_t next = 0;
    ConnId id = ConnId::none;
  };

  RteHash(std::string heap, Memory memory, std::size_t slots)
      : heap_(std::move(heap)), memory_(std::move(memory)), slots_(slots) {}

  bool own_heap();
  void advance(Step& step) const;
  std::uint32_t buckets() const { return static_cast<std::uint32_t>(slots_ / kBucketSlots); }
  /// rte_hash takes 32 bits: the lower ones pick the first bucket, and the upper 16 are the tag
  /// and, by exclusive or, the second bucket.
  static std::uint32_t signature(Hash hash) { return static_cast<std::uint32_t>(hash); }

  rte_hash* table_ = nullptr;
  std::string heap_;  // name of its heap; DPDK's own end at 31 characters
  Memory memory_;
  std::size_t slots_ = 0;
};

}  // namespace millrace
