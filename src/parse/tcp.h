// The fields of a TCP header that connections are followed by (RFC 9293, 3.1).
#pragma once

#include <cstdint>

#include "core/burst.h"
#include "core/protocol.h"
#include "core/signal.h"
#include "parse/bytes.h"
#include "parse/packet.h"

namespace millrace {

namespace detail {

inline constexpr unsigned kTcpFlags = 13;
inline constexpr unsigned kTcpHeader = 20;
inline constexpr std::uint8_t kFin = 0x01;
inline constexpr std::uint8_t kSyn = 0x02;
inline constexpr std::uint8_t kRst = 0x04;
inline constexpr std::uint8_t kAck = 0x10;

constexpr Signal signal_of_flags(std::uint8_t flags) {
  if ((flags & kRst) != 0) return Signal::rst;
  const bool syn = (flags & kSyn) != 0;
  const bool fin = (flags & kFin) != 0;
  const bool ack = (flags & kAck) != 0;
  if (syn && !fin) return ack ? Signal::syn_ack : Signal::syn;
  if (syn || !ack) return Signal::nothing;
  return fin ? Signal::fin : Signal::ack;
}

}  // namespace detail

/// Of a packet that has ports, or is of a protocol without.
inline Signal read_signal(const std::byte* data, const Headers& headers) {
  if (headers.protocol != kProtocolTcp) return Signal::packet;
  const unsigned at = headers.l4 + detail::kTcpFlags;
  return at < headers.l4_end ? detail::signal_of_flags(detail::u8(data + at)) : Signal::ack;
}

/// Of a TCP packet.
inline Segment read_segment(const std::byte* data, const Headers& headers) {
  const unsigned at = headers.l4;
  if (at + detail::kTcpHeader > headers.l4_end) return {};
  const std::uint8_t flags = detail::u8(data + at + detail::kTcpFlags);
  const unsigned payload = at + (detail::u8(data + at + 12) >> 4) * 4U;
  const unsigned end = detail::payload_end(data, headers);
  std::uint32_t length = end > payload ? end - payload : 0;
  length += ((flags & detail::kSyn) != 0) + ((flags & detail::kFin) != 0);
  const std::uint32_t sequence = detail::u32(data + at + 4);
  return {sequence, sequence + length, detail::u32(data + at + 8), (flags & detail::kAck) != 0,
          true};
}

}  // namespace millrace
