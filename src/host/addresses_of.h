// Reads addresses from packets with parsed headers, and classifies addresses. Plain functions.
#pragma once

#include <cstddef>
#include <cstring>

#include "core/burst.h"
#include "millrace/key.h"
#include "parse/rewrite.h"

namespace millrace {

template <class A>
A address_at(const std::byte* at) {
  A address;
  std::memcpy(address.bytes.data(), at, A::kBytes);
  return address;
}
template <class A>
A source_of(const std::byte* packet, const Headers& headers) {
  return address_at<A>(packet + headers.l3 + detail::IpOf<Key<A>>::kSource);
}
template <class A>
A destination_of(const std::byte* packet, const Headers& headers) {
  return address_at<A>(packet + headers.l3 + detail::IpOf<Key<A>>::kSource + A::kBytes);
}

/// True for a multicast address and for the limited broadcast address.
inline bool is_group(const AddressV4& address) {
  constexpr AddressV4 kEverybody{{255, 255, 255, 255}};
  return (address.bytes[0] & 0xf0) == 0xe0 || address == kEverybody;
}
inline bool is_group(const AddressV6& address) { return address.bytes[0] == 0xff; }

/// True for a link-local multicast address and for the limited broadcast address (RFC 5771, 4; RFC
/// 4291, 2.7).
inline bool is_group_of_link(const AddressV4& address) {
  const bool is_local = address.bytes[0] == 224 && address.bytes[1] == 0 && address.bytes[2] == 0;
  return is_local || (is_group(address) && address.bytes[0] == 255);
}
inline bool is_group_of_link(const AddressV6& address) {
  return is_group(address) && (address.bytes[1] & 0x0f) == 2;
}

/// True for an address that a host may have on the internet: of none of 0.0.0.0/8, 127.0.0.0/8 (RFC
/// 1122, 3.2.1.3), 224.0.0.0/4 (multicast) and 240.0.0.0/4 (reserved, and limited broadcast).
inline bool is_unicast(const AddressV4& address) {
  const unsigned first = address.bytes[0];
  return first != 0 && first != 127 && first < 224;
}

/// True for an address of one host: not multicast, limited broadcast, unspecified or loopback. As
/// in Linux, class E and the rest of 0.0.0.0/8 count as hosts.
inline bool is_one_host(const AddressV4& address) {
  if (is_unicast(address)) [[likely]]
    return true;
  return address != AddressV4{} && address.bytes[0] != 127 && !is_group(address);
}
inline bool is_one_host(const AddressV6& address) {
  AddressV6 loopback;
  loopback.bytes.back() = 1;
  return !is_group(address) && address != AddressV6{} && address != loopback;
}

/// True for a link-local address: every link has such addresses, valid there only (RFC
/// 4291, 2.5.6).
inline bool is_on_every_link(const AddressV4&) { return false; }
inline bool is_on_every_link(const AddressV6& address) {
  return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

}  // namespace millrace
