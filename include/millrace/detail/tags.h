// Comparison of the 32 short tags of one cache line with a tag, all at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "millrace/detail/isa.h"

namespace millrace::detail {
inline namespace MILLRACE_ISA {

#ifdef __SSE2__
/// Loads a vector of tags. `kShared`: other threads may write tags meanwhile. A tag is two aligned
/// bytes, which no x86 processor tears within a vector load: the manuals promise atomicity for
/// sixteen aligned bytes on processors with AVX (Intel SDM volume 3A, 9.1.1; AMD APM volume 2,
/// 7.3.2), and larger loads are not split into smaller pieces. C++ has no such atomic load, so the
/// load is an instruction in assembly. Later reads are ordered behind the load because their
/// addresses depend on it.
template <bool kShared, class Vector>
Vector load_tags(const std::byte* from) {
  const auto& memory = *reinterpret_cast<const Vector*>(from);
  if constexpr (!kShared) return memory;
  Vector vector;
  if constexpr (sizeof(Vector) == 64) {
    asm volatile("vmovdqa64 %1, %0" : "=v"(vector) : "m"(memory));
  } else if constexpr (sizeof(Vector) == 32) {
    asm volatile("vmovdqa %1, %0" : "=x"(vector) : "m"(memory));
  } else {
    asm volatile("movdqa %1, %0" : "=x"(vector) : "m"(memory));
  }
  return vector;
}
#endif

/// Returns a mask: bit i is set if the i-th tag of the line is `tag`. `line` is 64-byte aligned.
/// `kShared`: other threads may write tags meanwhile; each tag is read whole.
template <bool kShared = false>
std::uint32_t match_tags(const std::byte* line, std::uint16_t tag) {
#if defined(__AVX512BW__)
  const auto tags = load_tags<kShared, __m512i>(line);
  return _mm512_cmpeq_epi16_mask(tags, _mm512_set1_epi16(static_cast<short>(tag)));
#elif defined(__AVX2__)
  const __m256i wanted = _mm256_set1_epi16(static_cast<short>(tag));
  const __m256i low = _mm256_cmpeq_epi16(load_tags<kShared, __m256i>(line), wanted);
  const __m256i high = _mm256_cmpeq_epi16(load_tags<kShared, __m256i>(line + 32), wanted);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
#elif defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
  const auto match = [&](int i) {
    return _mm_cmpeq_epi16(load_tags<kShared, __m128i>(line + 16 * i), wanted);
  };
  const int low = _mm_movemask_epi8(_mm_packs_epi16(match(0), match(1)));
  const int high = _mm_movemask_epi8(_mm_packs_epi16(match(2), match(3)));
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
#else
  std::array<std::uint16_t, 32> tags;
  if constexpr (kShared) {
    for (unsigned i = 0; i < 32; ++i)
      tags[i] = __atomic_load_n(reinterpret_cast<const std::uint16_t*>(line) + i, __ATOMIC_ACQUIRE);
  } else {
    std::memcpy(tags.data(), line, sizeof(tags));
  }
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < 32; ++i) mask |= std::uint32_t{tags[i] == tag} << i;
  return mask;
#endif
}

}  // namespace MILLRACE_ISA
}  // namespace millrace::detail
