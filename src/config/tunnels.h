// Reads the customers of ports, behind tunnels or in VLANs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"
#include "core/customers.h"
#include "toml/keys.h"

namespace millrace::config {

/// One element of `customers`: a prefix of far ends, one end with a key or a name; or VLANs, of
/// which one may have a name.
struct RawCustomer {
  std::uint32_t line = 0;
  Text address;
  Text name;
  std::optional<std::uint32_t> key;
  bool has_vlans = false;  ///< the key `vlan` is there
  VlanRange vlans;
  bool is_wrong = false;  ///< a problem was noted already: nothing more is to be said about it
};

struct RawTunnels {
  Text kind;                         ///< `tunnel`
  std::uint32_t customers_line = 0;  ///< 0: the port has no key `customers`
  std::vector<RawCustomer> customers;
  bool is_wrong = false;  ///< a key, or one of the customers, has a problem that was noted already

  /// True if the customers are in VLANs.
  bool are_vlans() const {
    return !kind.given && std::ranges::any_of(customers, &RawCustomer::has_vlans);
  }
};

/// Reads the value of `customers`.
void read_customers(const Context& context, const toml::node& node, RawTunnels& out);

/// Checks the customers of all ports, by link, and returns them, in that order.
std::shared_ptr<const Customers> customers_of(Problems& problems, std::span<const RawTunnels> ports,
                                              const Config::Live& live);

}  // namespace millrace::config
