// Reading addresses of packets whose headers were parsed, and what kind of address one is. Plain
// functions.
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

/// Of one host: no group, not everybody, not the unspecified address, no loopback.
inline bool is_one_host(const AddressV4& address) {
  const unsigned first = address.bytes[0];
  return first != 0 && first != 127 && first < 224;
}
inline bool is_one_host(const AddressV6& address) {
  AddressV6 loopback;
  loopback.bytes.back() = 1;
  return address.bytes[0] != 0xff && address != AddressV6{} && address != loopback;
}

/// Every link has such addresses, each its own (RFC 4291, 2.5.6).
inline bool is_on_every_link(const AddressV4&) { return false; }
inline bool is_on_every_link(const AddressV6& address) {
  return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

}  // namespace millrace
