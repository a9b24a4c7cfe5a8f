// A bucket of `dhash`: one cache line of sixteen signatures, all compared at once.
//
//      0       4       8                60      64
//      +-------+-------+---        ---+-------+
//      | word0 | word1 |      ...     | word15|
//      +-------+-------+---        ---+-------+
//
//              31   30                   0
//            +-----+-----------------------+     signature: 0 free, 0x7fffffff draining, else live
//     word i |  L  |       signature       |     L: the bucket's conflict list has an entry with
//            +-----+-----------------------+        major location i
//
// The sixteen bits L save lookups the list: a lookup searches the list only if the bit of its major
// location is set. The bit L costs a signature one of its 32 bits, so signatures are equal if their
// lower 31 bits are.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "millrace/detail/isa.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// One bucket.
struct alignas(64) DHashBucket {
  using Word = std::uint32_t;
  static constexpr unsigned kSlots = 16;
  static constexpr Word kFree = 0;
  static constexpr Word kDraining = 0x7fffffff;
  static constexpr Word kListed = 0x80000000;

  std::array<Word, kSlots> line{};

  static bool equal(Word a, Word b) { return (a ^ b) << 1 == 0; }

  /// Returns a mask: bit i is set if slot i has that signature.
  std::uint32_t match(Word signature) const;
  std::uint32_t free() const { return match(kFree); }
  std::uint32_t live() const { return ~(match(kFree) | match(kDraining)) & 0xffff; }
  /// Returns the first free slot from `start` on, wrapping after the last. The bucket must have a
  /// free slot.
  unsigned first_free(unsigned start) const {
    const auto ahead = std::rotr(static_cast<std::uint16_t>(free()), static_cast<int>(start));
    return (start + static_cast<unsigned>(std::countr_zero(ahead))) % kSlots;
  }

  Word signature(unsigned slot) const { return line[slot] & ~kListed; }
  void put(unsigned slot, Word signature) {
    line[slot] = (signature & ~kListed) | (line[slot] & kListed);
  }
  bool listed(unsigned major) const { return (line[major] & kListed) != 0; }
  void set_listed(unsigned major, bool to) {
    line[major] = (line[major] & ~kListed) | (to ? kListed : 0);
  }
};
static_assert(sizeof(DHashBucket) == 64);

inline std::uint32_t DHashBucket::match(Word signature) const {
#if defined(__AVX512F__)
  const __m512i differ = _mm512_xor_si512(_mm512_load_si512(line.data()),
                                          _mm512_set1_epi32(static_cast<int>(signature)));
  return _mm512_testn_epi32_mask(differ, _mm512_set1_epi32(0x7fffffff));
#elif defined(__AVX2__)
  const auto* half = reinterpret_cast<const __m256i*>(line.data());
  const __m256i wanted = _mm256_set1_epi32(static_cast<int>(signature << 1));
  const auto match = [&](int i) {
    const __m256i signatures = _mm256_slli_epi32(_mm256_load_si256(half + i), 1);
    return _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(signatures, wanted)));
  };
  return static_cast<std::uint32_t>(match(0) | match(1) << 8);
#elif defined(__SSE2__)
  const auto* quarter = reinterpret_cast<const __m128i*>(line.data());
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(signature << 1));
  const auto match = [&](int i) {
    const __m128i signatures = _mm_slli_epi32(_mm_load_si128(quarter + i), 1);
    return _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(signatures, wanted)));
  };
  return static_cast<std::uint32_t>(match(0) | match(1) << 4 | match(2) << 8 | match(3) << 12);
#else
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < kSlots; ++i) mask |= std::uint32_t{equal(line[i], signature)} << i;
  return mask;
#endif
}

}  // namespace MILLRACE_ISA
}  // namespace millrace
