// Reads the TCP header fields by which connections are followed (RFC 9293, 3.1).
#pragma once

#include <algorithm>
#include <cstddef>
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

/// Returns the window scale, limited to 1 to 14, among a SYN's options, which lie from `at` to
/// `end`; kUnscaled if there is none.
inline std::uint8_t window_scale(const std::byte* at, const std::byte* end) {
  constexpr std::uint8_t kEnd = 0;
  constexpr std::uint8_t kNothing = 1;
  constexpr std::uint8_t kWindowScale = 3;
  while (end - at >= 2 && u8(at) != kEnd) {
    if (u8(at) == kNothing) {
      ++at;
      continue;
    }
    const std::uint8_t length = u8(at + 1);
    if (length < 2 || length > end - at) break;
    if (u8(at) == kWindowScale && length == 3) return std::clamp<std::uint8_t>(u8(at + 2), 1, 14);
    at += length;
  }
  return kUnscaled;
}

}  // namespace detail

/// Returns the segment of a TCP packet; one that is not whole if the TCP header was cut short, or
/// states a length that it cannot have.
[[gnu::always_inline]] inline Segment read_segment(const std::byte* data, const Headers& headers) {
  const unsigned at = headers.l4;
  if (at + detail::kTcpHeader > headers.l4_end) return {};
  const std::uint8_t flags = detail::u8(data + at + detail::kTcpFlags);
  const unsigned payload = at + (detail::u8(data + at + 12) >> 4) * 4U;
  const unsigned end = detail::payload_end(data, headers);
  if (payload < at + detail::kTcpHeader || payload > end) return {};
  std::uint32_t length = end > payload ? end - payload : 0;
  length += ((flags & detail::kSyn) != 0) + ((flags & detail::kFin) != 0);
  const std::uint32_t sequence = detail::u32(data + at + 4);
  Segment segment{sequence, sequence + length, detail::u32(data + at + 8),
                  (flags & detail::kAck) != 0, true};
  if ((flags & detail::kSyn) != 0 && payload <= headers.l4_end) [[unlikely]]
    segment.window_scale = detail::window_scale(data + at + detail::kTcpHeader, data + payload);
  return segment;
}

}  // namespace millrace
