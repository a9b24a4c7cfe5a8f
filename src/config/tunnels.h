// Reads the customers behind the tunnels of ports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"
#include "core/customers.h"
#include "toml/keys.h"

namespace millrace::config {

/// One element of `customers`: a prefix of far ends, or one end with a key or a name.
struct RawCustomer {
  std::uint32_t line = 0;
  Text address;
  Text name;
  std::optional<std::uint32_t> key;
};

struct RawTunnels {
  Text kind;                         ///< `tunnel`
  std::uint32_t customers_line = 0;  ///< 0: the port has no key `customers`
  std::vector<RawCustomer> customers;
};

/// Reads the value of `customers`.
void read_customers(const Context& context, const toml::node& node, RawTunnels& out);

/// Checks the tunnels of all ports, by link, and returns their customers, in that order.
std::shared_ptr<const Customers> customers_of(Problems& problems, std::span<const RawTunnels> ports,
                                              const Config::Live& live);

}  // namespace millrace::config
