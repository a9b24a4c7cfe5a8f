// The Ethernet header. Plain functions over the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/mac.h"
#include "parse/bytes.h"

namespace millrace {

inline constexpr unsigned kEthernetHeader = 14;
inline constexpr std::uint16_t kEtherTypeV4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeV6 = 0x86dd;

/// The `kEthernetHeader` bytes at `frame`.
inline void write_ethernet(std::byte* frame, const Mac& to, const Mac& from, std::uint16_t type) {
  std::memcpy(frame, to.bytes.data(), to.bytes.size());
  std::memcpy(frame + 6, from.bytes.data(), from.bytes.size());
  detail::store(frame + 12, detail::big_endian(type));
}

}  // namespace millrace
