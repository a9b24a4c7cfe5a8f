// One packet under the parser's eyes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parse/bytes.h"

namespace millrace::detail {

/// Offsets stay below 2^18 (a length of 16 bits and one header), so their sums do not wrap.
struct Packet {
  const std::byte* data;
  unsigned length;

  bool has(unsigned at, unsigned bytes) const { return at + bytes <= length; }
  std::uint8_t u8(unsigned at) const { return detail::u8(data + at); }
  std::uint16_t u16(unsigned at) const { return detail::u16(data + at); }
};

}  // namespace millrace::detail
