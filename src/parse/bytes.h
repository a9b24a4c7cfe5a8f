// Reads fields of packets: big-endian, at any alignment.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::detail {

inline std::uint8_t u8(const std::byte* at) { return std::to_integer<std::uint8_t>(*at); }

/// Returns the value in host byte order.
inline std::uint16_t u16(const std::byte* at) {
  return static_cast<std::uint16_t>((u8(at) << 8) | u8(at + 1));
}

inline std::uint32_t u32(const std::byte* at) { return std::uint32_t{u16(at)} << 16 | u16(at + 2); }

/// Returns a word as it lies in memory, for uses that do not depend on byte order.
template <class Word>
Word load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

template <class Word>
void store(std::byte* at, Word word) {
  std::memcpy(at, &word, sizeof word);
}

/// Returns the word that stores `value` (in host byte order) big-endian.
template <std::unsigned_integral Word>
constexpr Word big_endian(Word value) {
  return std::endian::native == std::endian::little ? std::byteswap(value) : value;
}

}  // namespace millrace::detail
