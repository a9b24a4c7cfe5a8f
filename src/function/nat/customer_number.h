// The numbers by which NAT knows customers.
#pragma once

#include <cstdint>
#include <optional>

#include "core/customers.h"

namespace millrace {

/// A customer: the number of a port's customer, with a tunnel or a VLAN (core/customers.h); or the
/// address by which another customer is known, as a number; or a group of sources. They cannot be
/// mistaken: no packet on a link has an address of 0.0.0.0/8 or 127.0.0.0/8 (RFC 1122, 3.2.1.3).
using CustomerNumber = std::uint32_t;

/// Returns the number of a port's customer; 0 for others.
inline Zone zone_of(CustomerNumber customer) { return customer <= Customers::kMost ? customer : 0; }

/// A group of sources that share the ports of one customer.
struct SourceGroup {
  static constexpr std::uint32_t kMost = std::uint32_t{1} << 16;  ///< groups of a pool
  static constexpr std::uint32_t kMostPools = std::uint32_t{1} << 8;

  std::uint32_t pool = 0;  ///< number of the pool (`NatRule::number_of_pool`)
  std::uint32_t group = 0;

  constexpr CustomerNumber number() const { return kFirst | pool << 16 | group; }
  /// Returns the group with that number; none if the customer is none.
  static constexpr std::optional<SourceGroup> of(CustomerNumber customer) {
    if (customer >> 24 != kFirst >> 24) return std::nullopt;
    return SourceGroup{customer >> 16 & 0xff, customer & 0xffff};
  }

 private:
  static constexpr CustomerNumber kFirst = 127U << 24;
};

}  // namespace millrace
