// The numbers by which NAT knows customers.
#pragma once

#include <cstdint>

#include "core/customers.h"

namespace millrace {

/// A customer: the number of one behind a tunnel (core/customers.h), or the address by which
/// another one is known, as a number. The two cannot be mistaken: no host has an address of
/// 0.0.0.0/8.
using CustomerNumber = std::uint32_t;

/// Returns the number of a customer behind a tunnel; 0 for others.
inline Zone zone_of(CustomerNumber customer) { return customer <= Customers::kMost ? customer : 0; }

}  // namespace millrace
