// Parses from the IP header to the ports. The code that both families share is written once, on the
// properties that `Ipv4` and `Ipv6` state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "core/burst.h"
#include "core/protocol.h"
#include "core/verdict.h"
#include "millrace/key.h"
#include "parse/packet.h"
#include "parse/parse.h"

namespace millrace::detail {

/// Returns a set of numbers below 64, one bit each.
constexpr std::uint64_t bits(std::initializer_list<unsigned> protocols) {
  std::uint64_t set = 0;
  for (const unsigned protocol : protocols) set |= std::uint64_t{1} << protocol;
  return set;
}
constexpr bool contains(std::uint64_t set, unsigned protocol) {
  return protocol < 64 && (set >> protocol & 1) != 0;
}

/// A position in an IP payload: a header of `protocol` begins at `at`, and the payload ends before
/// `end`.
struct Payload {
  static constexpr unsigned kUnknownEnd = std::numeric_limits<unsigned>::max();
  unsigned at = 0;
  unsigned end = kUnknownEnd;  ///< end stated by the IP header; may lie beyond the packet
  std::uint8_t protocol = 0;
  /// The bits of `Ip::kFragment` in the field that says so if the packet is a fragment; else 0.
  std::uint16_t fragment = 0;
};

/// Returns `tracked` if `bytes` bytes can be read at `payload.at`, else why not.
inline Verdict need(Packet packet, const Payload& payload, unsigned bytes) {
  if (payload.at + bytes > payload.end) [[unlikely]]
    return Verdict::malformed;
  if (!packet.has(payload.at, bytes)) [[unlikely]]
    return Verdict::truncated;
  return Verdict::tracked;
}

/// The kind of an ICMP message for tracking.
enum class Message : std::uint8_t { query, error, control };

struct Ipv4 {
  using Key = KeyV4;
  static constexpr std::uint8_t kFamily = 4;
  static constexpr unsigned kHeader = 20;
  static constexpr unsigned kSource = 12;
  static constexpr std::uint8_t kControl = kProtocolIcmp;
  static constexpr std::uint64_t kExtensions = 0;
  /// Bits of the field with a fragment's offset: offset and "more fragments"; the offset; the
  /// offset of 8 bytes.
  static constexpr std::uint16_t kFragment = 0x3fff;
  static constexpr std::uint16_t kOffset = 0x1fff;
  static constexpr std::uint16_t kOffsetUnit = 1;

  /// Returns the kind of a type (RFC 792; RFC 950: address mask; RFC 8335: extended echo). A
  /// redirect is `control`.
  static Message message(std::uint8_t type) {
    constexpr std::uint64_t kQueries = bits({0, 8, 13, 14, 15, 16, 17, 18, 42, 43});
    constexpr std::uint64_t kErrors = bits({3, 4, 11, 12});
    if (contains(kQueries, type)) return Message::query;
    return contains(kErrors, type) ? Message::error : Message::control;
  }

  /// Reads an IPv4 header (RFC 791, 3.1). Segmentation offload leaves a total length of 0 in
  /// captures.
  static Verdict open(Packet packet, unsigned l3, Payload& payload) {
    const unsigned header = (packet.u8(l3) & 15U) * 4;
    const unsigned total = packet.u16(l3 + 2);
    if (header < kHeader) return Verdict::malformed;
    if (total != 0) {
      if (total < header) return Verdict::malformed;
      payload.end = l3 + total;
    }
    payload.at = l3 + header;
    payload.protocol = packet.u8(l3 + 9);
    payload.fragment = packet.u16(l3 + 6) & kFragment;
    if (header == kHeader) [[likely]]
      return Verdict::tracked;
    if (!packet.has(l3, header)) return Verdict::truncated;
    return check_options(packet, l3 + kHeader, payload.at);
  }

  /// Checks the options. A loose or strict source route names further hops while its pointer is
  /// inside the option.
  static Verdict check_options(Packet packet, unsigned at, unsigned end) {
    constexpr unsigned kEndOfList = 0;
    constexpr unsigned kNoOperation = 1;
    constexpr unsigned kLooseRoute = 131;
    constexpr unsigned kStrictRoute = 137;
    while (at < end) {
      const unsigned type = packet.u8(at);
      if (type == kEndOfList) break;
      if (type == kNoOperation) {
        ++at;
        continue;
      }
      const unsigned size = at + 1 < end ? packet.u8(at + 1) : 0;
      if (size < 2 || at + size > end) return Verdict::malformed;
      if (type == kLooseRoute || type == kStrictRoute) {
        if (size < 3) return Verdict::malformed;
        if (packet.u8(at + 2) <= size) return Verdict::source_routed;
      }
      at += size;
    }
    return Verdict::tracked;
  }
};

struct Ipv6 {
  using Key = KeyV6;
  static constexpr std::uint8_t kFamily = 6;
  static constexpr unsigned kHeader = 40;
  static constexpr unsigned kSource = 8;
  static constexpr std::uint8_t kControl = kProtocolIcmpV6;
  static constexpr std::uint64_t kExtensions =
      bits({kProtocolHopByHop, kProtocolRouting, kProtocolFragment, kProtocolDestinationOptions});
  static constexpr std::uint16_t kFragment = 0xfff9;
  static constexpr std::uint16_t kOffset = 0xfff8;
  static constexpr std::uint16_t kOffsetUnit = 8;

  /// Returns the kind of a type (RFC 4443, 2.1: errors have no high bit; RFC 4443, 4; RFC 8335:
  /// extended echo).
  static Message message(std::uint8_t type) {
    if (type < 128) return Message::error;
    const bool query = type == 128 || type == 129 || type == 160 || type == 161;
    return query ? Message::query : Message::control;
  }

  /// Reads an IPv6 header (RFC 8200, 3). A jumbogram (RFC 2675) has length 0 and hop-by-hop
  /// options.
  static Verdict open(Packet packet, unsigned l3, Payload& payload) {
    const unsigned bytes = packet.u16(l3 + 4);
    payload.at = l3 + kHeader;
    payload.protocol = packet.u8(l3 + 6);
    if (bytes != 0 || payload.protocol != kProtocolHopByHop) payload.end = payload.at + bytes;
    return Verdict::tracked;
  }
};

/// Returns the length in bytes of an extension header `protocol` with the length field `field` (RFC
/// 8200, 4).
constexpr unsigned extension_bytes(std::uint8_t protocol, unsigned field) {
  return protocol == kProtocolFragment ? 8 : (field + 1) * 8;
}

/// Moves `payload` behind the extension header that it is at.
inline Verdict skip_extension(Packet packet, Payload& payload) {
  if (const Verdict verdict = need(packet, payload, 8); verdict != Verdict::tracked) return verdict;
  const unsigned at = payload.at;
  const unsigned bytes = extension_bytes(payload.protocol, packet.u8(at + 1));
  if (at + bytes > kMaxReach) return Verdict::header_chain;
  if (const Verdict verdict = need(packet, payload, bytes); verdict != Verdict::tracked) {
    return verdict;
  }
  if (payload.protocol == kProtocolRouting && packet.u8(at + 3) != 0) return Verdict::source_routed;
  if (payload.protocol == kProtocolFragment)
    payload.fragment =
        static_cast<std::uint16_t>(payload.fragment | (packet.u16(at + 2) & Ipv6::kFragment));
  payload.protocol = packet.u8(at);
  payload.at = at + bytes;
  return Verdict::tracked;
}

template <class Ip>
bool is_later_fragment(const Payload& payload) {
  return (payload.fragment & Ip::kOffset) != 0;
}

/// Moves `payload` behind all extension headers; in a later fragment, behind those up to the
/// fragment header. An authentication header is no extension header here: it is tracked by
/// addresses in both families (docs/parse.md says why).
template <class Ip>
Verdict skip_extensions(Packet packet, Payload& payload) {
  for (unsigned steps = 0; contains(Ip::kExtensions, payload.protocol); ++steps) {
    if (is_later_fragment<Ip>(payload)) return Verdict::tracked;
    if (steps == kMaxExtensions) return Verdict::header_chain;
    const Verdict verdict = skip_extension(packet, payload);
    if (verdict != Verdict::tracked) return verdict;
  }
  return Verdict::tracked;
}

/// Reads an ICMP query's identifier, which stands for both ports.
template <class Ip>
Verdict read_identifier(Packet packet, const Payload& payload, typename Ip::Key& key) {
  if (const Verdict verdict = need(packet, payload, 1); verdict != Verdict::tracked) return verdict;
  const Message message = Ip::message(packet.u8(payload.at));
  if (message != Message::query) {
    return message == Message::error ? Verdict::icmp_error : Verdict::icmp_control;
  }
  if (const Verdict verdict = need(packet, payload, 6); verdict != Verdict::tracked) return verdict;
  key.source_port = key.destination_port = packet.u16(payload.at + 4);
  return Verdict::tracked;
}

/// Fills in the key's ports, or returns why the packet cannot be tracked.
template <class Ip>
Verdict read_ports(Packet packet, const Payload& payload, typename Ip::Key& key) {
  key.source_port = key.destination_port = 0;
  if (has_ports(payload.protocol)) [[likely]] {
    if (const Verdict verdict = need(packet, payload, 4); verdict != Verdict::tracked) {
      return verdict;
    }
    key.source_port = packet.u16(payload.at);
    key.destination_port = packet.u16(payload.at + 2);
  } else if (payload.protocol == Ip::kControl) {
    return read_identifier<Ip>(packet, payload, key);
  }
  return Verdict::tracked;
}

/// Returns how many bytes of a transport header a first fragment must hold, at least, beginning at
/// `at`: the whole header, in which rules and states find all that they need.
inline unsigned least_header(Packet packet, unsigned at, std::uint8_t protocol) {
  constexpr unsigned kTcp = 20;
  switch (protocol) {
    case kProtocolTcp:
      return packet.has(at, kTcp) ? std::max(kTcp, (packet.u8(at + 12) >> 4) * 4U) : kTcp;
    case kProtocolSctp:
      return 16;  // with the header of the first chunk
    case kProtocolDccp:
      return 12;
    case kProtocolUdp:
    case kProtocolUdpLite:
    case kProtocolIcmp:
    case kProtocolIcmpV6:
      return 8;
    default:
      return 0;
  }
}

/// Does what `read_ports` does, for a first fragment. Returns `fragment` for a later one, of which
/// it clears the protocol. A first fragment without its whole transport header is tiny (RFC 1858,
/// 3; RFC 7112, 5); so is a TCP fragment that could overwrite the flags of the first (RFC 3128, 3).
template <class Ip>
Verdict open_fragment(Packet packet, Payload& payload, typename Ip::Key& key) {
  if (is_later_fragment<Ip>(payload)) {
    const bool is_second = (payload.fragment & Ip::kOffset) == Ip::kOffsetUnit;
    if (is_second && payload.protocol == kProtocolTcp) return Verdict::fragment_tiny;
    payload.protocol = kProtocolFragment;
    return Verdict::fragment;
  }
  if (payload.at + least_header(packet, payload.at, payload.protocol) > payload.end)
    return Verdict::fragment_tiny;
  return read_ports<Ip>(packet, payload, key);
}

/// Reads headers and key of a packet with its IP header at `l3`. Returns `fragment` for a later
/// fragment, and also for a first one with a key: then `headers.protocol` is not
/// `kProtocolFragment`.
template <class Ip>
Verdict parse_ip(Packet packet, unsigned l3, Headers& headers, typename Ip::Key& key) {
  if (!packet.has(l3, Ip::kHeader)) [[unlikely]]
    return Verdict::truncated;
  if (packet.u8(l3) >> 4 != Ip::kFamily) [[unlikely]]
    return Verdict::malformed;
  Payload payload;
  Verdict verdict = Ip::open(packet, l3, payload);
  if (verdict != Verdict::tracked) [[unlikely]]
    return verdict;
  verdict = skip_extensions<Ip>(packet, payload);
  if (verdict != Verdict::tracked) [[unlikely]]
    return verdict;
  verdict = payload.fragment != 0 ? open_fragment<Ip>(packet, payload, key)
                                  : read_ports<Ip>(packet, payload, key);
  if (verdict == Verdict::truncated || verdict == Verdict::malformed ||
      verdict == Verdict::fragment_tiny) [[unlikely]]
    return verdict;

  constexpr std::size_t kAddresses = 2 * Ip::Key::Address::kBytes;
  std::memcpy(static_cast<void*>(&key), packet.data + l3 + Ip::kSource, kAddresses);
  key.protocol = payload.protocol;
  key.zone = {};
  headers = {static_cast<std::uint16_t>(l3), static_cast<std::uint16_t>(payload.at),
             static_cast<std::uint16_t>(std::min(payload.end, packet.length)), Ip::kFamily,
             payload.protocol};
  if (payload.fragment != 0 && verdict == Verdict::tracked) [[unlikely]]
    return Verdict::fragment;
  return verdict;
}

/// Returns the number of bytes on the wire behind the IP header and its extension headers; 0 if the
/// packet is the first fragment of a datagram.
inline unsigned datagram_bytes(const std::byte* packet, const Headers& headers) {
  const std::byte* ip = packet + headers.l3;
  const unsigned bytes = payload_end(packet, headers) - headers.l4;
  if (headers.family == 4) return (u16(ip + 6) & 0x2000) != 0 ? 0 : bytes;
  std::uint8_t protocol = u8(ip + 6);
  for (unsigned at = headers.l3 + Ipv6::kHeader; at < headers.l4;) {
    const std::byte* extension = packet + at;
    if (protocol == kProtocolFragment && (u16(extension + 2) & 1) != 0) return 0;
    at += extension_bytes(protocol, u8(extension + 1));
    protocol = u8(extension);
  }
  return bytes;
}

}  // namespace millrace::detail
