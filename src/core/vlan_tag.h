// The tag of a VLAN in an Ethernet frame (IEEE 802.1Q, 9.6). Plain functions over the caller's
// bytes.
//
//     0            6            12     14     16
//     | receiver's | sender's   | 8100 | tag  | EtherType, payload ...
//
// The tag's upper four bits are a priority, the others the VLAN's number; 0: a priority alone.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace millrace {

inline constexpr unsigned kBeforeTag = 12;  ///< bytes of the MACs
inline constexpr unsigned kVlanTagBytes = 4;
inline constexpr unsigned kVlans = 4096;  ///< numbers that a tag can hold
inline constexpr unsigned kMostVlan = 4094;

namespace detail {
inline constexpr std::uint32_t kTagType = 0x8100;

/// Moves the MACs of a frame, which may overlap their new place.
inline void move_macs(std::byte* to, const std::byte* from) {
  std::uint64_t first;
  std::uint32_t rest;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&rest, from + sizeof first, sizeof rest);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + sizeof first, &rest, sizeof rest);
}
inline std::uint32_t big_endian_word(std::uint32_t word) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(word) : word;
}
}  // namespace detail

/// Returns the number of the VLAN in a frame's first tag; 0 if the frame begins with no tag of the
/// type 0x8100, or with one that has a priority alone.
inline unsigned vlan_of(std::span<const std::byte> frame) {
  if (frame.size() < kBeforeTag + kVlanTagBytes) return 0;
  std::uint32_t word;
  std::memcpy(&word, frame.data() + kBeforeTag, sizeof word);
  word = detail::big_endian_word(word);
  return word >> 16 == detail::kTagType ? word & 0xfff : 0;
}

/// Takes the first tag out of a frame, which then begins `kVlanTagBytes` later.
inline void take_tag(std::byte* frame) { detail::move_macs(frame + kVlanTagBytes, frame); }

/// Puts a tag with priority 0 into a frame, which then begins at `frame`; before the call it begins
/// `kVlanTagBytes` later.
inline void put_tag(std::byte* frame, unsigned vlan) {
  detail::move_macs(frame, frame + kVlanTagBytes);
  const std::uint32_t word = detail::big_endian_word(detail::kTagType << 16 | vlan);
  std::memcpy(frame + kBeforeTag, &word, sizeof word);
}

}  // namespace millrace
