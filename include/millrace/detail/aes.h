// One round of AES (FIPS 197, 5.1) on a 16-byte block: the primitive of the keyed hash. Code for a
// processor with AES and SSE2 uses its AES instruction, other code a table; the results are the
// same.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "millrace/detail/isa.h"

namespace millrace::detail {
inline namespace MILLRACE_ISA {

#if defined(__AES__) && defined(__SSE2__)

struct AesBlock {
  __m128i bits;
};

inline AesBlock aes_load(const void* bytes) {
  return {_mm_loadu_si128(static_cast<const __m128i*>(bytes))};
}
inline AesBlock aes_load_low(std::uint64_t word) {
  return {_mm_cvtsi64_si128(static_cast<long long>(word))};
}
inline AesBlock aes_xor(AesBlock a, AesBlock b) { return {_mm_xor_si128(a.bits, b.bits)}; }
/// Does one round: SubBytes, ShiftRows, MixColumns, AddRoundKey.
inline AesBlock aes_round(AesBlock state, AesBlock key) {
  return {_mm_aesenc_si128(state.bits, key.bits)};
}
inline std::uint64_t aes_low(AesBlock state) {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(state.bits));
}

#else

struct AesBlock {
  std::array<std::uint32_t, 4> columns;
};

inline AesBlock aes_load(const void* bytes) {
  AesBlock block;
  std::memcpy(block.columns.data(), bytes, 16);
  return block;
}
inline AesBlock aes_load_low(std::uint64_t word) {
  return {{static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32), 0, 0}};
}
inline AesBlock aes_xor(AesBlock a, const AesBlock& b) {
  for (unsigned i = 0; i < 4; ++i) a.columns[i] ^= b.columns[i];
  return a;
}
inline std::uint64_t aes_low(const AesBlock& state) {
  return state.columns[0] | static_cast<std::uint64_t>(state.columns[1]) << 32;
}

constexpr std::uint8_t aes_times2(std::uint8_t x) {
  return static_cast<std::uint8_t>(x << 1 ^ (x & 0x80 ? 0x1b : 0));
}

/// Returns SubBytes and MixColumns of a column's first byte, for each value of that byte; rotations
/// of a table entry serve the column's other three bytes. The S-box is filled in the order of the
/// powers of 3, which generates the multiplicative group of AES's field.
constexpr std::array<std::uint32_t, 256> aes_column_table() {
  std::array<std::uint32_t, 256> table{};
  const auto put = [&table](std::uint8_t at, std::uint8_t s) {
    const std::uint8_t s2 = aes_times2(s);
    table[at] = s2 | std::uint32_t{s} << 8 | std::uint32_t{s} << 16 |
                std::uint32_t{static_cast<std::uint8_t>(s2 ^ s)} << 24;
  };
  std::uint8_t p = 1;
  std::uint8_t inverse = 1;
  do {
    p = static_cast<std::uint8_t>(p ^ aes_times2(p));
    for (const unsigned shift : {1U, 2U, 4U})
      inverse ^= static_cast<std::uint8_t>(inverse << shift);
    if (inverse & 0x80) inverse ^= 0x09;
    put(p,
        static_cast<std::uint8_t>(0x63 ^ inverse ^ std::rotl(inverse, 1) ^ std::rotl(inverse, 2) ^
                                  std::rotl(inverse, 3) ^ std::rotl(inverse, 4)));
  } while (p != 1);
  put(0, 0x63);
  return table;
}
inline constexpr auto kAesColumn = aes_column_table();

inline AesBlock aes_round(const AesBlock& state, const AesBlock& key) {
  static_assert(std::endian::native == std::endian::little);
  AesBlock next = key;
  for (unsigned column = 0; column < 4; ++column) {
    for (unsigned row = 0; row < 4; ++row) {
      const std::uint32_t from = state.columns[(column + row) % 4];
      next.columns[column] ^=
          std::rotl(kAesColumn[from >> (8 * row) & 0xff], 8 * static_cast<int>(row));
    }
  }
  return next;
}

#endif

}  // namespace MILLRACE_ISA
}  // namespace millrace::detail
