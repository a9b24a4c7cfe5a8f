// The customers behind tunnels or in VLANs. Each has a number, which is the zone in the keys of
// packets that come from him: so two customers may have the same addresses.
//
// A customer is known by the port and his VLAN there; or by the port and the address from which his
// tunnel comes, and by the tunnel's key, if it has one (RFC 2890). Numbers count from 1 on, in the
// order in which customers are added: those that are added behind others change no number.
//
// One thread makes the list; then it never changes, and any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "core/prefix.h"
#include "core/prefix_table.h"
#include "core/vlan_tag.h"
#include "millrace/key.h"

namespace millrace {

/// VLANs (IEEE 802.1Q), from the first to the last.
struct VlanRange {
  std::uint16_t first = 0;  ///< 0: there are none
  std::uint16_t last = 0;

  bool is_empty() const { return first == 0; }
  bool contains(unsigned vlan) const { return !is_empty() && first <= vlan && vlan <= last; }
  friend bool operator==(const VlanRange&, const VlanRange&) = default;
};

/// Returns VLANs as text, like 100-3999 or 17.
std::string to_string(const VlanRange& vlans);

/// A group of customers of a port: each VLAN is one's, or each address of a prefix is the far end
/// of one's tunnel.
struct CustomerGroup {
  unsigned link = 0;                 ///< number of the port
  Prefix<AddressV4> ends;            ///< the far ends; without a meaning if there are VLANs
  std::optional<std::uint32_t> key;  ///< the tunnel's key; only with one address
  /// The only customer's. Empty: their addresses are the names, or the port's name and the VLAN,
  /// like access.100.
  std::string name;
  VlanRange vlans;   ///< none: the customers are behind tunnels
  std::string port;  ///< the port's name; needed only with VLANs

  std::uint32_t size() const {
    return vlans.is_empty() ? addresses_in(ends) : 1U + vlans.last - vlans.first;
  }
  friend bool operator==(const CustomerGroup&, const CustomerGroup&) = default;
};

class Customers {
 public:
  static constexpr Zone kMost = 0xffffff;

  /// Makes a list of groups; together they have at most `kMost` customers. No two have the same
  /// link and a common VLAN, or the same link and key and a common address.
  explicit Customers(std::vector<CustomerGroup> groups = {});

  bool empty() const { return groups_.empty(); }
  Zone size() const { return groups_.empty() ? 0 : behind(groups_.size() - 1) - 1; }
  const std::vector<CustomerGroup>& groups() const { return groups_; }
  /// Returns the number of a group's first customer.
  Zone first_of(std::size_t group) const { return first_[group]; }

  /// Returns the number of the customer whose tunnel that is; 0: nobody's.
  Zone find(unsigned link, const AddressV4& end, std::optional<std::uint32_t> key) const;

  /// Returns the number of the customer with that VLAN on the link; 0: nobody has it.
  Zone find(unsigned link, unsigned vlan) const {
    return has_vlans(link) && vlan < kVlans ? by_vlan_[link][vlan] : 0;
  }
  /// True if the link has customers in VLANs.
  bool has_vlans(unsigned link) const { return link < by_vlan_.size() && !by_vlan_[link].empty(); }

  /// How a customer reaches millrace.
  struct Access {
    unsigned link = 0;
    unsigned vlan = 0;                 ///< his VLAN; 0: he is behind a tunnel
    AddressV4 end;                     ///< the far end of his tunnel
    std::optional<std::uint32_t> key;  ///< the tunnel's
  };
  /// Returns how the customer with that number reaches millrace; none if there is no such customer.
  std::optional<Access> access_of(Zone number) const;

  /// Returns the customer's name; his number in words if there is no such customer.
  std::string name_of(Zone number) const;
  /// Returns the numbers of the customers with that name, or of those in a group's prefix or VLANs:
  /// the first, and the one behind the last. None if there is no such name.
  std::optional<std::pair<Zone, Zone>> named(const std::string& name) const;

 private:
  Zone behind(std::size_t group) const { return first_[group] + groups_[group].size(); }
  std::size_t group_of(Zone number) const;

  std::vector<CustomerGroup> groups_;
  std::vector<Zone> first_;                               // by group
  std::unordered_map<std::string, std::size_t> by_name_;  // groups
  struct OfKey {
    unsigned link;
    std::optional<std::uint32_t> key;
    std::vector<std::uint32_t> groups;  // by place in `ends`
    PrefixTable<AddressV4> ends;
  };
  std::vector<OfKey> tables_;               // sorted by link and key
  std::vector<std::vector<Zone>> by_vlan_;  // by link and VLAN; empty: the link has none
};

}  // namespace millrace
