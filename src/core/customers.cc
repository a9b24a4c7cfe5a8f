#include "core/customers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "core/address.h"
#include "core/address_numbers.h"
#include "core/parameters.h"

namespace millrace {
namespace {

/// Returns the VLAN that a name like access.100 means on the port `access`; 0: none.
unsigned vlan_in(std::string_view name, const std::string& port) {
  if (!name.starts_with(port) || name.substr(port.size(), 1) != ".") return 0;
  return parse_number(name.substr(port.size() + 1), kMostVlan).value_or(0);
}

/// Returns the name of a group of customers that have no names of their own.
std::string default_name(const CustomerGroup& group) {
  return group.vlans.is_empty() ? to_string(group.ends) : group.port + "." + to_string(group.vlans);
}

}  // namespace

std::string to_string(const VlanRange& vlans) {
  std::string text = std::to_string(vlans.first);
  if (vlans.first != vlans.last) text += "-" + std::to_string(vlans.last);
  return text;
}

Customers::Customers(std::vector<CustomerGroup> groups) : groups_(std::move(groups)) {
  std::map<std::pair<unsigned, std::optional<std::uint32_t>>, std::vector<std::uint32_t>> by_key;
  Zone next = 1;
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    const CustomerGroup& group = groups_[n];
    first_.push_back(next);
    by_name_.emplace(group.name.empty() ? default_name(group) : group.name, n);
    if (group.vlans.is_empty()) {
      by_key[{group.link, group.key}].push_back(static_cast<std::uint32_t>(n));
    } else {
      if (by_vlan_.size() <= group.link) by_vlan_.resize(group.link + 1);
      auto& table = by_vlan_[group.link];
      table.resize(kVlans);
      std::iota(table.begin() + group.vlans.first, table.begin() + group.vlans.last + 1, next);
    }
    next += group.size();
  }
  for (auto& [of, its] : by_key) {
    std::vector<Prefix<AddressV4>> ends;
    for (const std::uint32_t n : its) ends.push_back(groups_[n].ends);
    tables_.push_back({of.first, of.second, std::move(its),
                       PrefixTable<AddressV4>(std::span<const Prefix<AddressV4>>(ends))});
  }
}

Zone Customers::find(unsigned link, const AddressV4& end, std::optional<std::uint32_t> key) const {
  const auto at =
      std::ranges::lower_bound(tables_, std::pair{link, key}, std::ranges::less{},
                               [](const OfKey& one) { return std::pair{one.link, one.key}; });
  if (at == tables_.end() || at->link != link || at->key != key) return 0;
  const std::uint32_t place = at->ends.find(end);
  if (place == PrefixTable<AddressV4>::kNone) return 0;
  const std::uint32_t group = at->groups[place];
  return first_[group] + number_of(end) - number_of(groups_[group].ends.address);
}

std::size_t Customers::group_of(Zone number) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(first_, number) - first_.begin()) - 1;
}

auto Customers::access_of(Zone number) const -> std::optional<Access> {
  if (number == 0 || number > size()) return std::nullopt;
  const std::size_t n = group_of(number);
  const CustomerGroup& group = groups_[n];
  const Zone place = number - first_[n];
  if (!group.vlans.is_empty())
    return Access{.link = group.link, .vlan = group.vlans.first + place, .end = {}, .key = {}};
  return Access{.link = group.link, .end = address_in(group.ends, place), .key = group.key};
}

std::string Customers::name_of(Zone number) const {
  const auto access = access_of(number);
  if (!access) return "customer " + std::to_string(number);
  const CustomerGroup& group = groups_[group_of(number)];
  if (!group.name.empty()) return group.name;
  return access->vlan != 0 ? group.port + "." + std::to_string(access->vlan)
                           : to_string(access->end);
}

std::optional<std::pair<Zone, Zone>> Customers::named(const std::string& name) const {
  if (const auto of_name = by_name_.find(name); of_name != by_name_.end())
    return std::pair{first_[of_name->second], behind(of_name->second)};
  const auto address = parse_address<AddressV4>(name);
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    const CustomerGroup& group = groups_[n];
    if (!group.name.empty()) continue;
    if (const unsigned vlan = vlan_in(name, group.port); group.vlans.contains(vlan))
      return std::pair{first_[n] + vlan - group.vlans.first,
                       first_[n] + vlan - group.vlans.first + 1};
    if (!address || !group.vlans.is_empty() || !group.ends.contains(*address)) continue;
    const Zone number = first_[n] + number_of(*address) - number_of(group.ends.address);
    return std::pair{number, number + 1};
  }
  return std::nullopt;
}

}  // namespace millrace
