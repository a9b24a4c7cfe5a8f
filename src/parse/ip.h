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
  bool later_fragment = false;
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
  static constexpr std::uint64_t kExtensions = bits({kProtocolAuthentication});

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
    payload.later_fragment = (packet.u16(l3 + 6) & 0x1fff) != 0;
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
      bits({kProtocolHopByHop, kProtocolRouting, kProtocolFragment, kProtocolAuthentication,
            kProtocolDestinationOptions});

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
/// 8200, 4; RFC 4302).
constexpr unsigned extension_bytes(std::uint8_t protocol, unsigned field) {
  if (protocol == kProtocolFragment) return 8;
  return protocol == kProtocolAuthentication ? (field + 2) * 4 : (field + 1) * 8;
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
    payload.later_fragment = (packet.u16(at + 2) & 0xfff8) != 0;
  payload.protocol = packet.u8(at);
  payload.at = at + bytes;
  return Verdict::tracked;
}

/// Moves `payload` behind all extension headers; in a later fragment, behind those up to the
/// fragment header.
template <class Ip>
Verdict skip_extensions(Packet packet, Payload& payload) {
  for (unsigned steps = 0; contains(Ip::kExtensions, payload.protocol); ++steps) {
    if (payload.later_fragment) return Verdict::tracked;
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

/// Reads headers and key of a packet with its IP header at `l3`.
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
  verdict = payload.later_fragment ? Verdict::fragment : read_ports<Ip>(packet, payload, key);
  if (verdict == Verdict::truncated || verdict == Verdict::malformed) [[unlikely]]
    return verdict;

  constexpr std::size_t kAddresses = 2 * Ip::Key::Address::kBytes;
  std::memcpy(static_cast<void*>(&key), packet.data + l3 + Ip::kSource, kAddresses);
  key.protocol = payload.protocol;
  key.zone = {};
  headers = {static_cast<std::uint16_t>(l3), static_cast<std::uint16_t>(payload.at),
             static_cast<std::uint16_t>(std::min(payload.end, packet.length)), Ip::kFamily,
             payload.protocol};
  return verdict;
}

}  // namespace millrace::detail
