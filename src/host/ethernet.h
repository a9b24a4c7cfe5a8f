// The Ethernet header. Plain functions over the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/mac.h"
#include "parse/bytes.h"
#include "parse/link.h"

namespace millrace {

inline constexpr unsigned kEthernetHeader = 14;
inline constexpr std::uint16_t kEtherTypeV4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeV6 = 0x86dd;

/// Returns the offset of a frame's EtherType, behind priority tags: those of VLAN 0 (IEEE 802.1Q,
/// 6.9). As in Linux, such tags may be nested. The frame may end at that offset.
inline unsigned ether_type_at(std::span<const std::byte> frame) {
  unsigned at = 12;
  for (unsigned tags = 0; tags < kMaxLinkHeaders && frame.size() >= at + 4; ++tags, at += 4) {
    const unsigned type = detail::u16(frame.data() + at);
    const bool is_tag = type == detail::kVlan || type == detail::kServiceVlan;
    if (!is_tag || (detail::u16(frame.data() + at + 2) & 0xfff) != 0) break;
  }
  return at;
}

/// Writes the `kEthernetHeader` bytes at `frame`.
inline void write_ethernet(std::byte* frame, const Mac& to, const Mac& from, std::uint16_t type) {
  std::memcpy(frame, to.bytes.data(), to.bytes.size());
  std::memcpy(frame + 6, from.bytes.data(), from.bytes.size());
  detail::store(frame + 12, detail::big_endian(type));
}

}  // namespace millrace
