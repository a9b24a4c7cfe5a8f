// The IP header of packets that a host makes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "host/hop_limit.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/rewrite.h"

namespace millrace {

/// Writes the header of a packet between the addresses of a key, which must not be fragmented, with
/// `payload` bytes behind the header. Returns the place behind it.
template <class K>
std::byte* write_ip_header(std::byte* to, const K& key, std::uint8_t protocol,
                           std::uint16_t payload) {
  using detail::big_endian;
  using detail::store;
  using A = typename K::Address;
  using Ip = detail::IpOf<K>;
  std::fill_n(to, Ip::kHeader, std::byte{});
  if constexpr (A::kBytes == 4) {
    to[0] = std::byte{0x45};
    store(to + 2, big_endian(static_cast<std::uint16_t>(Ip::kHeader + payload)));
    // Don't Fragment is set, so the identification may be 0 (RFC 6864).
    to[6] = std::byte{0x40};
    to[8] = std::byte{kFirstHopLimit};
    to[9] = std::byte{protocol};
  } else {
    to[0] = std::byte{0x60};
    store(to + 4, big_endian(payload));
    to[6] = std::byte{protocol};
    to[7] = std::byte{kFirstHopLimit};
  }
  std::memcpy(to + Ip::kSource, key.source.bytes.data(), A::kBytes);
  std::memcpy(to + Ip::kSource + A::kBytes, key.destination.bytes.data(), A::kBytes);
  if constexpr (A::kBytes == 4) store(to + 10, internet_checksum({to, Ip::kHeader}));
  return to + Ip::kHeader;
}

}  // namespace millrace
