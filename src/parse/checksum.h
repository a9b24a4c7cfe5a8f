// The Internet checksum (RFC 1071), whole and by difference (RFC 1624), and SCTP's CRC32c by
// difference.
//
// Sums are of 16-bit words as they lie in memory: a ones' complement sum does not depend on byte
// order (RFC 1071, 2 B). Load and store checksum fields as they lie, never swapped.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/key.h"
#include "parse/bytes.h"

namespace millrace {

/// Folds a sum of 16-bit words to their ones' complement sum; 0 only if all words were 0.
constexpr std::uint16_t fold(std::uint64_t sum) {
  // In each step the upper half becomes the sum of both halves, with its carry.
  const auto words = static_cast<std::uint32_t>((sum + std::rotl(sum, 32)) >> 32);
  return static_cast<std::uint16_t>((words + std::rotl(words, 16)) >> 16);
}

/// Adds `bytes` to a sum; an odd last byte is padded with a zero byte. A sum that begins at 0 does
/// not overflow with 2^32 bytes.
inline std::uint64_t add_words(std::uint64_t sum, std::span<const std::byte> bytes) {
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) sum += detail::load<std::uint32_t>(bytes.data() + i);
  std::array<std::byte, 4> rest{};
  for (std::size_t k = 0; i + k < bytes.size(); ++k) rest[k] = bytes[i + k];
  return sum + detail::load<std::uint32_t>(rest.data());
}

/// Returns the checksum of what `sum` holds and of `bytes`, whose checksum field must be 0, as it
/// is to be stored.
inline std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint64_t sum = 0) {
  return static_cast<std::uint16_t>(~fold(add_words(sum, bytes)));
}

/// Returns the sum of the pseudo header of either family (RFC 9293, 3.1; RFC 8200, 8.1). `length`
/// is the length of the transport header and its payload in bytes.
template <class A>
std::uint64_t pseudo_header_sum(const A& source, const A& destination, std::uint8_t protocol,
                                std::uint32_t length) {
  std::array<std::byte, 8> rest{};
  for (unsigned i = 0; i < 4; ++i) rest[i] = static_cast<std::byte>(length >> (24 - 8 * i));
  rest[7] = std::byte{protocol};
  std::uint64_t sum = add_words(0, rest);
  sum = add_words(sum, std::as_bytes(std::span(source.bytes)));
  return add_words(sum, std::as_bytes(std::span(destination.bytes)));
}

/// The difference that replacing words makes to the checksums that cover them. The words must lie
/// at even offsets in the summed data.
class Difference {
 public:
  template <class Word>
  void replace(Word was, Word is) {
    sum_ += static_cast<Word>(~was);
    sum_ += is;
  }
  void add(const Difference& other) { sum_ += other.sum_; }
  /// Returns the updated checksum (RFC 1624, equation 3). The result is 0xffff only if `checksum`
  /// is 0xffff and the difference is 0.
  std::uint16_t apply_to(std::uint16_t checksum) const {
    return static_cast<std::uint16_t>(~fold(sum_ + static_cast<std::uint16_t>(~checksum)));
  }

 private:
  std::uint64_t sum_ = 0;
};

/// Returns the value to XOR into a message's CRC32c when `change` is XORed into a 16-bit word as it
/// lies in the message; `following` bytes come after the word. CRCs are linear, so the initial and
/// final inversions cancel out.
std::uint32_t crc32c_difference(std::uint16_t change, std::uint32_t following);

}  // namespace millrace
