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

/// `Words` says how many threads use it at a time; see words.h.
template <class Words>
struct alignas(64) RaceBucket {
  using Tag = std::uint16_t;
  static constexpr Tag kFree = 0;
  static constexpr Tag kDraining = 1;
  static constexpr unsigned kSlots = 28;
  static constexpr unsigned kFilters = 21;
  /// In place of a slot, where there is none.
  static constexpr unsigned kNoSlot = kSlots;

  std::array<Tag, kSlots> tag{};
  std::uint64_t overflow = 0;

  /// A bit a slot.
  std::uint32_t match(Tag wanted) const {
    constexpr std::uint32_t kSlotMask = (1U << kSlots) - 1;
    return match_tags<Words::kShared>(reinterpret_cast<const std::byte*>(this), wanted) & kSlotMask;
  }
  std::uint32_t free() const { return match(kFree); }
  std::uint32_t live() const { return ~(match(kFree) | match(kDraining)) & ((1U << kSlots) - 1); }

  /// A free slot becomes draining, and the caller's; or `kNoSlot`.
  unsigned claim() {
    for (std::uint32_t slots = free(); slots != 0; slots &= slots - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(slots));
      if (Words::change(tag[slot], kFree, kDraining)) return slot;
    }
    return kNoSlot;
  }

  /// Entries of that filter value that went past.
  std::uint64_t passed(unsigned filter) const { return passed(Words::load(overflow), filter); }
  bool can_pass(unsigned filter) const { return passed(filter) < kPassedMax; }
  /// One more; false, and nothing is changed, where the counter is at its end.
  bool count_in(unsigned filter) {
    std::uint64_t now;
    do {
      now = Words::load(overflow);
      if (passed(now, filter) == kPassedMax) return false;
    } while (!Words::change(overflow, now, now + one(filter)));
    return true;
  }
  void count_out(unsigned filter) {
    std::uint64_t now;
    do {
      now = Words::load(overflow);
    } while (!Words::change(overflow, now, now - one(filter)));
  }

  /// While it lives, no other thread inserts or erases keys whose first bucket this is.
  class Exclusive {
   public:
    explicit Exclusive(RaceBucket& first) : word_(first.overflow) { Words::lock(word_, kLocked); }
    ~Exclusive() { Words::unlock(word_, kLocked); }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

   private:
    std::uint64_t& word_;
  };

 private:
  static constexpr unsigned kFilterBits = 3;
  static constexpr std::uint64_t kPassedMax = (1U << kFilterBits) - 1;
  static constexpr std::uint64_t kLocked = std::uint64_t{1} << kFilters * kFilterBits;

  static std::uint64_t one(unsigned filter) { return std::uint64_t{1} << kFilterBits * filter; }
  static std::uint64_t passed(std::uint64_t counters, unsigned filter) {
    return counters >> kFilterBits * filter & kPassedMax;
  }
};
static_assert(sizeof(RaceBucket<OneThread>) == 64);

}  // namespace MILLRACE_ISA
}  // namespace millrace::detail
