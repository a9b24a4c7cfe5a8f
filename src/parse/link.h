// Parses from the link header to the IP header: tags, labels, LLC/SNAP, PPPoE.
#pragma once

#include <array>
#include <cstdint>

#include "core/link_type.h"
#include "core/verdict.h"
#include "parse/packet.h"
#include "parse/parse.h"

namespace millrace::detail {

/// EtherTypes (IANA, IEEE 802 numbers).
// Values below this are a length, and LLC follows (IEEE 802.3, 3.2.6).
inline constexpr std::uint32_t kMinEtherType = 0x0600;
inline constexpr std::uint32_t kIpv4 = 0x0800;
inline constexpr std::uint32_t kVlan = 0x8100;
inline constexpr std::uint32_t kIpv6 = 0x86dd;
inline constexpr std::uint32_t kMpls = 0x8847;
inline constexpr std::uint32_t kMplsUpstream = 0x8848;
inline constexpr std::uint32_t kPppoeSession = 0x8864;
inline constexpr std::uint32_t kServiceVlan = 0x88a8;
inline constexpr std::uint32_t kOldServiceVlan = 0x9100;
// Not an EtherType: the IP version in the first byte decides.
inline constexpr std::uint32_t kByVersion = 0x10000;

struct LinkHeader {
  unsigned bytes;
  unsigned type_at;  // offset of the EtherType
};

constexpr LinkHeader link_header(LinkType link) {
  constexpr std::array<LinkHeader, 4> kHeaders{{{14, 12}, {0, 0}, {16, 14}, {20, 0}}};
  return kHeaders[static_cast<std::size_t>(link)];
}

/// The EtherType of the header at `at`.
struct Next {
  std::uint32_t type;
  unsigned at;
};

/// Skips a VLAN tag. Each `skip_` function moves `next` behind one header and returns `tracked`; if
/// it cannot, it returns why.
inline Verdict skip_tag(Packet packet, Next& next) {
  if (!packet.has(next.at, 4)) return Verdict::truncated;
  next = {packet.u16(next.at + 2), next.at + 4};
  return Verdict::tracked;
}

/// Skips an MPLS label; behind the last one the IP version decides.
inline Verdict skip_label(Packet packet, Next& next) {
  if (!packet.has(next.at, 4)) return Verdict::truncated;
  const bool bottom = (packet.u8(next.at + 2) & 1) != 0;  // RFC 3032, 2.1
  next = {bottom ? kByVersion : next.type, next.at + 4};
  return Verdict::tracked;
}

/// Replaces `kByVersion` by the EtherType of the IP version in the first byte.
inline Verdict by_version(Packet packet, Next& next) {
  if (!packet.has(next.at, 1)) return Verdict::truncated;
  const unsigned version = packet.u8(next.at) >> 4;
  if (version != 4 && version != 6) return Verdict::not_ip;
  next.type = version == 4 ? kIpv4 : kIpv6;
  return Verdict::tracked;
}

/// Skips a PPPoE header (RFC 2516, 4). The PPP protocol may be compressed to its lower byte (RFC
/// 1661, 6.5).
inline Verdict skip_pppoe(Packet packet, Next& next) {
  constexpr unsigned kHeader = 6;
  if (!packet.has(next.at, kHeader + 1)) return Verdict::truncated;
  if (packet.u16(next.at) != 0x1100) return Verdict::not_ip;  // version 1, type 1, session data
  unsigned at = next.at + kHeader;
  unsigned protocol = packet.u8(at++);
  if ((protocol & 1) == 0) {
    if (!packet.has(at, 1)) return Verdict::truncated;
    protocol = protocol << 8 | packet.u8(at++);
  }
  if (protocol != 0x21 && protocol != 0x57) return Verdict::not_ip;
  next = {protocol == 0x21 ? kIpv4 : kIpv6, at};
  return Verdict::tracked;
}

/// Skips IEEE 802.2 with SNAP. EtherTypes follow the OUIs 00-00-00 (RFC 1042) and 00-00-f8
/// (802.1H).
inline Verdict skip_llc(Packet packet, Next& next) {
  if (!packet.has(next.at, 3)) return Verdict::truncated;
  if (packet.u16(next.at) != 0xaaaa || packet.u8(next.at + 2) != 3) return Verdict::not_ip;
  if (!packet.has(next.at, 8)) return Verdict::truncated;
  const unsigned oui = unsigned{packet.u16(next.at + 3)} << 8 | packet.u8(next.at + 5);
  if (oui != 0 && oui != 0xf8) return Verdict::not_ip;
  next = {packet.u16(next.at + 6), next.at + 8};
  return Verdict::tracked;
}

inline Verdict skip_one(Packet packet, Next& next) {
  switch (next.type) {
    case kVlan:
    case kServiceVlan:
    case kOldServiceVlan:
      return skip_tag(packet, next);
    case kMpls:
    case kMplsUpstream:
      return skip_label(packet, next);
    case kPppoeSession:
      return skip_pppoe(packet, next);
    case kByVersion:
      return by_version(packet, next);
    default:
      return next.type < kMinEtherType ? skip_llc(packet, next) : Verdict::not_ip;
  }
}

/// Finds the IP header: `next` is then an IPv4 or IPv6 EtherType and the header's offset.
inline Verdict find_ip(Packet packet, LinkHeader link, Next& next) {
  if (packet.length < link.bytes) return Verdict::truncated;
  next = {link.bytes == 0 ? kByVersion : packet.u16(link.type_at), link.bytes};
  for (unsigned steps = 0; next.type != kIpv4 && next.type != kIpv6; ++steps) {
    if (steps == kMaxLinkHeaders) return Verdict::header_chain;
    if (const Verdict verdict = skip_one(packet, next); verdict != Verdict::tracked) return verdict;
  }
  return Verdict::tracked;
}

}  // namespace millrace::detail
