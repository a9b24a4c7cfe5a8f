// Filters that select connections to list, end or trace. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "core/address.h"
#include "core/customers.h"
#include "core/parameters.h"
#include "line/line.h"
#include "millrace/types.h"

namespace millrace {

/// A filter: a connection must match all parts that are given.
struct ConnectionFilter {
  struct Prefix {
    AnyAddress address;
    unsigned bits = 0;
  };

  std::optional<std::uint8_t> protocol;
  std::optional<Prefix> source;
  std::optional<Prefix> destination;
  std::optional<std::uint16_t> source_port;
  std::optional<std::uint16_t> destination_port;
  std::optional<std::string_view> state;  ///< the state's name, which two states may share
  std::optional<Prefix> backend;
  std::optional<std::uint16_t> backend_port;
  /// Numbers of customers behind tunnels, the first and the one behind the last: one of them is at
  /// either end.
  std::optional<std::pair<Zone, Zone>> customers;

  bool takes(const ListedConnection& connection) const;
  bool takes_all() const;
};

/// Reads a filter from `parameters`, by the names of its parts; `customers` are those that a part
/// may name. Other parameters are left to the caller: `is_other` returns true for the names that
/// the caller knows. Errors: usage (a parameter is unknown, or its value is wrong).
Result<ConnectionFilter> parse_filter(Parameters parameters, const Customers& customers,
                                      bool (*is_other)(std::string_view));

/// Reads the key that the parameters `protocol`, `source`, `source_port`, `destination` and
/// `destination_port` name; a missing port is 0. `customer` names the customer behind a
/// tunnel or in a VLAN that sends the packet. Errors: usage (a parameter is missing, unknown or
/// wrong).
Result<AnyKey> parse_key(Parameters parameters, const Customers& customers);

}  // namespace millrace
