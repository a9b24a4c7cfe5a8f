// A bucket of `race`: one cache line.
//
//      0      2                        54     56                      64
//      +------+------+---       ---+------+---------------------------+
//      | tag0 | tag1 |     ...     | tag27| overflow                  |
//      +------+------+---       ---+------+---------------------------+
//      tag: 0 free, 1 draining, else live   overflow: 21 counters of 3 bits, and a lock bit
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "millrace/detail/isa.h"
#include "millrace/detail/tags.h"
#include "millrace/detail/words.h"

namespace millrace::detail {
inline namespace MILLRACE_ISA {

/// One bucket. `Words` is `OneThread` or `ManyThreads` (words.h).
template <class Words>
struct alignas(64) RaceBucket {
  using Tag = std::uint16_t;
  static constexpr Tag kFree = 0;
  static constexpr Tag kDraining = 1;
  static constexpr unsigned kSlots = 28;
  static constexpr unsigned kFilters = 21;

  std::array<Tag, kSlots> tag{};
  std::uint64_t overflow = 0;

  /// Returns a mask of the slots with that tag, one bit a slot.
  std::uint32_t match(Tag wanted) const {
    constexpr std::uint32_t kSlotMask = (1U << kSlots) - 1;
    return match_tags<Words::kShared>(reinterpret_cast<const std::byte*>(this), wanted) & kSlotMask;
  }
  std::uint32_t free() const { return match(kFree); }
  std::uint32_t live() const { return ~(match(kFree) | match(kDraining)) & ((1U << kSlots) - 1); }

  /// Returns a free slot, or `kSlots` if none is free.
  unsigned free_slot() const {
    const auto slot = static_cast<unsigned>(std::countr_zero(free()));
    if (slot >= kSlots) return kSlots;
    (void)Words::load(tag[slot]);  // acquire: reads of the slot's former entry are over
    return slot;
  }

  /// Returns how many live entries with that filter value stand in a later home of their key, as
  /// this bucket, an earlier home, was full when they were inserted.
  std::uint64_t passed(unsigned filter) const {
    return Words::load(overflow) >> kFilterBits * filter & kPassedMax;
  }
  bool can_pass(unsigned filter) const { return passed(filter) < kPassedMax; }

  /// @name Only the thread that holds the bucket may call these
  /// @{
  void count_in(unsigned filter) { Words::store(overflow, Words::load(overflow) + one(filter)); }
  void count_out(unsigned filter) { Words::store(overflow, Words::load(overflow) - one(filter)); }
  /// @}

  /// Holds a bucket while the object lives: meanwhile no other thread inserts into the bucket,
  /// changes its counters, or inserts or erases keys that have it as their first bucket. With
  /// `OneThread` it does nothing.
  class Hold {
   public:
    Hold() = default;
    explicit Hold(RaceBucket& bucket) : word_(&bucket.overflow) { Words::lock(*word_, kLocked); }
    ~Hold() {
      if (word_ != nullptr) Words::unlock(*word_, kLocked);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    /// Takes the bucket; returns false if another thread holds the bucket. Does not wait: a thread
    /// that holds one bucket and waits for another could deadlock.
    bool try_to_have(RaceBucket& bucket) {
      if (!Words::try_lock(bucket.overflow, kLocked)) return false;
      word_ = &bucket.overflow;
      return true;
    }

   private:
    std::uint64_t* word_ = nullptr;
  };

 private:
  static constexpr unsigned kFilterBits = 3;
  static constexpr std::uint64_t kPassedMax = (1U << kFilterBits) - 1;
  static constexpr std::uint64_t kLocked = std::uint64_t{1} << kFilters * kFilterBits;

  static std::uint64_t one(unsigned filter) { return std::uint64_t{1} << kFilterBits * filter; }
};
static_assert(sizeof(RaceBucket<OneThread>) == 64);

}  // namespace MILLRACE_ISA
}  // namespace millrace::detail
