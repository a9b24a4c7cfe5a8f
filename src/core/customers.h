// The customers behind tunnels. Each has a number, which is the zone in the keys of packets that
// come from him: so two customers may have the same addresses.
//
// A customer is known by the port and the address from which his tunnel comes, and by the tunnel's
// key, if it has one (RFC 2890). Numbers count from 1 on, in the order in which customers are
// added: those that are added behind others change no number.
//
// One thread makes the list; then it never changes, and any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "core/prefix.h"
#include "core/prefix_table.h"
#include "millrace/key.h"

namespace millrace {

/// A group of customers: each address of a prefix is the far end of one's tunnel.
struct CustomerGroup {
  unsigned link = 0;                 ///< number of the port where their tunnels end
  Prefix<AddressV4> ends;            ///< the far ends
  std::optional<std::uint32_t> key;  ///< the tunnel's key; only with one address
  std::string name;                  ///< the only customer's; empty: their addresses are the names

  std::uint32_t size() const { return addresses_in(ends); }
  friend bool operator==(const CustomerGroup&, const CustomerGroup&) = default;
};

class Customers {
 public:
  static constexpr Zone kMost = 0xffffff;

  /// Makes a list of groups; together they have at most `kMost` customers. No two have the same
  /// link and key, and a common address.
  explicit Customers(std::vector<CustomerGroup> groups = {});

  bool empty() const { return groups_.empty(); }
  Zone size() const { return groups_.empty() ? 0 : behind(groups_.size() - 1) - 1; }
  const std::vector<CustomerGroup>& groups() const { return groups_; }
  /// Returns the number of a group's first customer.
  Zone first_of(std::size_t group) const { return first_[group]; }

  /// Returns the number of the customer whose tunnel that is; 0: nobody's.
  Zone find(unsigned link, const AddressV4& end, std::optional<std::uint32_t> key) const;

  struct Tunnel {
    unsigned link = 0;
    AddressV4 end;  ///< the far end
    std::optional<std::uint32_t> key;
  };
  /// Returns the tunnel of the customer with that number; none if there is no such customer.
  std::optional<Tunnel> tunnel_of(Zone number) const;

  /// Returns the customer's name; his number in words if there is no such customer.
  std::string name_of(Zone number) const;
  /// Returns the numbers of the customers with that name, or of those in a prefix: the first, and
  /// the one behind the last. None if there is no such name.
  std::optional<std::pair<Zone, Zone>> named(const std::string& name) const;

 private:
  Zone behind(std::size_t group) const { return first_[group] + groups_[group].size(); }
  std::size_t group_of(Zone number) const;

  std::vector<CustomerGroup> groups_;
  std::vector<Zone> first_;  // by group
  struct OfKey {
    unsigned link;
    std::optional<std::uint32_t> key;
    std::vector<std::uint32_t> groups;  // by place in `ends`
    PrefixTable<AddressV4> ends;
  };
  std::vector<OfKey> tables_;  // sorted by link and key
};

}  // namespace millrace
