// One packet, as the parser reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"
#include "parse/bytes.h"

namespace millrace::detail {

/// The bytes of a packet. Offsets stay below 2^18 (a 16-bit length and one header), so sums of them
/// do not wrap.
struct Packet {
  const std::byte* data;
  unsigned length;

  bool has(unsigned at, unsigned bytes) const { return at + bytes <= length; }
  std::uint8_t u8(unsigned at) const { return detail::u8(data + at); }
  std::uint16_t u16(unsigned at) const { return detail::u16(data + at); }
};

/// Returns the end of the IP payload on the wire, in bytes from `data`; the end of the captured
/// bytes if the header has no length.
inline unsigned payload_end(const std::byte* data, const Headers& headers) {
  const bool v4 = headers.family == 4;
  const unsigned length = u16(data + headers.l3 + (v4 ? 2 : 4));
  if (length == 0) return headers.l4_end;
  return headers.l3 + length + (v4 ? 0U : 40U);
}

}  // namespace millrace::detail
