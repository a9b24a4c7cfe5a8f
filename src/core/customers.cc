#include "core/customers.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/address.h"
#include "core/address_numbers.h"

namespace millrace {

Customers::Customers(std::vector<CustomerGroup> groups) : groups_(std::move(groups)) {
  std::map<std::pair<unsigned, std::optional<std::uint32_t>>, std::vector<std::uint32_t>> by_key;
  Zone next = 1;
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    first_.push_back(next);
    next += groups_[n].size();
    by_key[{groups_[n].link, groups_[n].key}].push_back(static_cast<std::uint32_t>(n));
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

auto Customers::tunnel_of(Zone number) const -> std::optional<Tunnel> {
  if (number == 0 || number > size()) return std::nullopt;
  const std::size_t n = group_of(number);
  const CustomerGroup& group = groups_[n];
  return Tunnel{group.link, address_in(group.ends, number - first_[n]), group.key};
}

std::string Customers::name_of(Zone number) const {
  const auto tunnel = tunnel_of(number);
  if (!tunnel) return "customer " + std::to_string(number);
  const std::string& name = groups_[group_of(number)].name;
  return name.empty() ? to_string(tunnel->end) : name;
}

std::optional<std::pair<Zone, Zone>> Customers::named(const std::string& name) const {
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    const CustomerGroup& group = groups_[n];
    if (group.name.empty() ? to_string(group.ends) == name : group.name == name)
      return std::pair{first_[n], behind(n)};
  }
  const auto address = parse_address<AddressV4>(name);
  if (!address) return std::nullopt;
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    const CustomerGroup& group = groups_[n];
    if (!group.name.empty() || !group.ends.contains(*address)) continue;
    const Zone number = first_[n] + number_of(*address) - number_of(group.ends.address);
    return std::pair{number, number + 1};
  }
  return std::nullopt;
}

}  // namespace millrace
