// IPv4 addresses as numbers, to count in pools.
#pragma once

#include <cstdint>

#include "core/prefix.h"

namespace millrace {

inline std::uint32_t number_of(const AddressV4& address) {
  std::uint32_t number = 0;
  for (const std::uint8_t byte : address.bytes) number = number << 8 | byte;
  return number;
}

inline AddressV4 address_with(std::uint32_t number) {
  AddressV4 address;
  for (unsigned i = 0; i < AddressV4::kBytes; ++i)
    address.bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
  return address;
}

/// Returns the number of addresses in a prefix of 1 to 32 bits.
inline std::uint32_t addresses_in(const Prefix<AddressV4>& prefix) {
  return std::uint32_t{1} << (32 - prefix.bits);
}
inline AddressV4 address_in(const Prefix<AddressV4>& prefix, std::uint32_t n) {
  return address_with(number_of(prefix.address) + n);
}

}  // namespace millrace
