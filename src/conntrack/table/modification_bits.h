// A bitmap of marked buckets with levels above it, so that a marked bucket is found without a
// search of all buckets.
//
//      level 2                [                       1                       ]
//      level 1                [         1          0          1      ...      ]
//      level 0  [ 0 0 1 0 ... 0 ] [ 0 0 0 0 ... 0 ] [ 0 1 0 0 ... 1 ]   ...
//
// A word has 64 bits. A bit of a level is set if its word in the level below has a bit set. After
// Le Scouarnec, "Cuckoo++ hash tables", ANCS'18. Only the thread that uses the table may use it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "millrace/memory.h"

namespace millrace {

/// The bitmap. Bits are numbered from 0.
class ModificationBits {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  /// Makes `bits` clear bits. Errors (failed): no memory.
  static Result<ModificationBits> create(std::uint32_t bits, Pages pages) {
    ModificationBits made;
    std::size_t words = 0;
    std::uint32_t left = bits;
    do {
      left = (left + 63) / 64;
      made.start_[made.levels_++] = words;
      words += left;
    } while (left > 1);
    auto memory = Memory::map(words * sizeof(std::uint64_t), pages);
    if (!memory) return std::unexpected(memory.error());
    made.memory_ = std::move(*memory);
    return made;
  }

  void set(std::uint32_t at) {
    for (unsigned level = 0; level < levels_; ++level, at /= 64) {
      std::uint64_t& bits = word(level, at / 64);
      const bool was_any = bits != 0;
      bits |= std::uint64_t{1} << at % 64;
      if (was_any) return;
    }
  }
  void clear(std::uint32_t at) {
    for (unsigned level = 0; level < levels_; ++level, at /= 64) {
      std::uint64_t& bits = word(level, at / 64);
      bits &= ~(std::uint64_t{1} << at % 64);
      if (bits != 0) return;
    }
  }
  bool test(std::uint32_t at) const { return (word(0, at / 64) >> at % 64 & 1) != 0; }

  bool any() const { return word(levels_ - 1, 0) != 0; }
  /// Returns the lowest set bit, or `kNone`.
  std::uint32_t first() const {
    std::uint32_t at = 0;
    for (unsigned level = levels_; level-- > 0;) {
      const std::uint64_t bits = word(level, at);
      if (bits == 0) return kNone;
      at = at * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
    }
    return at;
  }

  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

 private:
  std::uint64_t& word(unsigned level, std::uint32_t at) const {
    return reinterpret_cast<std::uint64_t*>(memory_.data())[start_[level] + at];
  }

  Memory memory_;
  std::array<std::size_t, 6> start_{};  // 64^6 bits are more than 32 bits can count
  unsigned levels_ = 0;
};

}  // namespace millrace
