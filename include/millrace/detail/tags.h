// Matching 32 short tags of one cache line at once.
#pragma once

#include <array>
#include <cstdint>

#include "millrace/detail/isa.h"

namespace millrace::detail {
inline namespace MILLRACE_ISA {

/// Bit i is set where `line[i] == tag`. `line` is 64-byte aligned.
inline std::uint32_t match_tags(const std::array<std::uint16_t, 32>& line, std::uint16_t tag) {
#if defined(__AVX512BW__)
  return _mm512_cmpeq_epi16_mask(_mm512_load_si512(line.data()),
                                 _mm512_set1_epi16(static_cast<short>(tag)));
#elif defined(__AVX2__)
  const auto* half = reinterpret_cast<const __m256i*>(line.data());
  const __m256i wanted = _mm256_set1_epi16(static_cast<short>(tag));
  const __m256i low = _mm256_cmpeq_epi16(_mm256_load_si256(half), wanted);
  const __m256i high = _mm256_cmpeq_epi16(_mm256_load_si256(half + 1), wanted);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
#elif defined(__SSE2__)
  const auto* quarter = reinterpret_cast<const __m128i*>(line.data());
  const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
  const auto match = [&](int i) { return _mm_cmpeq_epi16(_mm_load_si128(quarter + i), wanted); };
  const int low = _mm_movemask_epi8(_mm_packs_epi16(match(0), match(1)));
  const int high = _mm_movemask_epi8(_mm_packs_epi16(match(2), match(3)));
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
#else
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < 32; ++i) mask |= std::uint32_t{line[i] == tag} << i;
  return mask;
#endif
}

}  // namespace MILLRACE_ISA
}  // namespace millrace::detail
