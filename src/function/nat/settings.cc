#include "function/nat/settings.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/address.h"
#include "core/address_numbers.h"
#include "core/json.h"
#include "core/parameters.h"
#include "function/nat/kind.h"

namespace millrace {

std::string_view to_string(Dependence dependence) {
  switch (dependence) {
    case Dependence::endpoint_independent:
      return "endpoint-independent";
    case Dependence::address_dependent:
      return "address-dependent";
    case Dependence::address_and_port_dependent:
      return "address-and-port-dependent";
  }
  return "";
}

std::uint32_t NatPool::addresses() const {
  std::uint32_t all = 0;
  for (const Prefix<AddressV4>& prefix : prefixes) all += addresses_in(prefix);
  return all;
}

AddressV4 NatPool::address_at(std::uint32_t n) const {
  for (const Prefix<AddressV4>& prefix : prefixes) {
    if (n < addresses_in(prefix)) return address_in(prefix, n);
    n -= addresses_in(prefix);
  }
  return {};
}

std::optional<PortRange> NatPool::range_of(CustomerNumber customer) const {
  const auto place = places.place_of(customer);
  if (!place || *place >= ranges()) return std::nullopt;
  const std::uint32_t ports = block_size * blocks_per_customer;
  const auto first = static_cast<std::uint16_t>(first_port + *place % ranges_per_address() * ports);
  return PortRange{address_at(static_cast<std::uint32_t>(*place / ranges_per_address())), first,
                   static_cast<std::uint16_t>(first + ports - 1)};
}

std::optional<CustomerNumber> NatPool::customer_of(const AddressV4& address,
                                                   std::uint16_t port) const {
  const std::uint32_t in_address = (port - first_port) / (block_size * blocks_per_customer);
  if (port < first_port || in_address >= ranges_per_address()) return std::nullopt;
  std::uint32_t before = 0;
  for (const Prefix<AddressV4>& prefix : prefixes) {
    if (prefix.contains(address))
      return places.at(std::uint64_t{before + number_of(address) - number_of(prefix.address)} *
                           ranges_per_address() +
                       in_address);
    before += addresses_in(prefix);
  }
  return std::nullopt;
}

/// Gives the customers of deterministic pools their places, in the order of the file.
void NatSettings::give_places() {
  for (const NatRule& rule : rules) {
    if (rule.pool >= pools.size() || !pools[rule.pool].is_deterministic) continue;
    CustomerPlaces& places = pools[rule.pool].places;
    for (const auto& [first, behind] : rule.customers) {
      for (std::size_t n = 0; n < customers->groups().size(); ++n) {
        const Zone from = std::max(first, customers->first_of(n));
        const Zone to = std::min(behind, customers->first_of(n) + customers->groups()[n].size());
        if (from < to) places.add(from, to - from, 1);
      }
    }
    if (!rule.customers.empty()) continue;
    for (const Prefix<AddressV4>& source : rule.sources)
      places.add(number_of(prefix_of(source.address, rule.customer_bits)),
                 std::uint64_t{1} << (std::max(source.bits, rule.customer_bits) - source.bits),
                 std::uint64_t{1} << (32 - rule.customer_bits));
  }
}

void NatSettings::index() {
  for (NatPool& pool : pools) pool.places = {};
  views_.clear();
  give_places();
  // Rules that begin (1) or cease (-1) to hold, by the customer's number from which on.
  std::map<Zone, std::vector<std::pair<std::size_t, int>>> changes{{0, {}}, {1, {}}};
  for (std::size_t n = 0; n < rules.size(); ++n) {
    NatRule& rule = rules[n];
    rule.destination_table = PrefixTable<AddressV4>(rule.destinations);
    rule.exempt_table = PrefixTable<AddressV4>(rule.exempt);
    auto ranges = rule.customers;
    if (ranges.empty()) ranges.emplace_back(0, 1);
    for (const auto& [first, behind] : ranges) {
      changes[first].emplace_back(n, 1);
      changes[behind].emplace_back(n, -1);
    }
  }
  std::map<std::size_t, int> holding;
  std::vector<Intervals<Zone>::Bound> bounds;
  for (const auto& [customer, its] : changes) {
    for (const auto& [rule, more] : its) holding[rule] += more;
    std::erase_if(holding, [](const auto& one) { return one.second == 0; });
    bounds.push_back({customer, static_cast<std::uint32_t>(views_.size())});
    views_.push_back(view_of(holding));
  }
  view_of_ = Intervals<Zone>(bounds);
}

/// Returns the view of a customer with these rules, by place. Where two rules have the same source,
/// the one that names him goes before the one that is for any.
auto NatSettings::view_of(const std::map<std::size_t, int>& holding) const -> View {
  std::map<Prefix<AddressV4>, std::uint32_t> rule_of;
  for (const bool is_for_any : {true, false}) {
    for (const auto& [n, times] : holding) {
      if (rules[n].is_for_any != is_for_any) continue;
      for (const auto& prefix : rules[n].sources) rule_of[prefix] = static_cast<std::uint32_t>(n);
    }
  }
  for (const NatPool& pool : pools) {
    for (const auto& prefix : pool.prefixes) rule_of[prefix] = kNoRule;
  }
  for (const AddressV4& address : forwards.addresses())
    rule_of[{address, 8 * AddressV4::kBytes}] = kNoRule;
  View view;
  std::vector<Prefix<AddressV4>> sources;
  for (const auto& [prefix, rule] : rule_of) {
    sources.push_back(prefix);
    view.rule_at.push_back(rule);
  }
  view.sources = PrefixTable<AddressV4>(sources);
  return view;
}

bool NatSettings::is_ports_customers(const AddressV4& source) const {
  const auto has = [&source](const auto& prefix) { return prefix.contains(source); };
  return std::ranges::any_of(rules, [&](const NatRule& rule) {
    return !rule.customers.empty() && std::ranges::any_of(rule.sources, has);
  });
}

bool NatSettings::is_hosts(Zone customer, const AddressV4& address) const {
  if (std::ranges::binary_search(hosts, address)) return true;
  if (customer == 0 || hosts_of_customers.empty()) return false;
  const auto access = customers->access_of(customer);
  const auto is_it = [&](const auto& one) {
    return one.link == access->link && one.address == address;
  };
  return access && std::ranges::any_of(hosts_of_customers, is_it);
}

std::string NatSettings::name_of(CustomerNumber customer) const {
  if (const auto group = SourceGroup::of(customer)) {
    const auto is_its = [&group](const NatRule& rule) {
      return rule.source_groups != 0 && rule.number_of_pool == group->pool;
    };
    const auto rule = std::ranges::find_if(rules, is_its);
    if (rule != rules.end()) return pools[rule->pool].name + "/" + std::to_string(group->group);
  }
  if (const Zone zone = zone_of(customer); zone != 0) return customers->name_of(zone);
  const AddressV4 address = address_with(customer);
  return to_string(Prefix<AddressV4>{address, bits_of(address)});
}

/// Returns the bits of the customer that has that first address; 32 if there is no such customer. A
/// rule's source may be a part of the customer's prefix, and lack the first address.
unsigned NatSettings::bits_of(const AddressV4& address) const {
  const auto begins_there = [&address](const NatRule& rule) {
    const auto is_his = [&](const Prefix<AddressV4>& source) {
      return source.bits > rule.customer_bits &&
             prefix_of(source.address, rule.customer_bits) == address;
    };
    return rule.customers.empty() && std::ranges::any_of(rule.sources, is_his);
  };
  const NatRule* const by = rule_of(0, address);
  if (by != nullptr && customer_by(*by, 0, address) == number_of(address)) return by->customer_bits;
  const auto rule = std::ranges::find_if(rules, begins_there);
  return rule != rules.end() ? rule->customer_bits : 8 * AddressV4::kBytes;
}

AddressV4 NatSettings::address_of(CustomerNumber customer) const {
  const auto access = customers->access_of(zone_of(customer));
  return access ? access->end : address_with(customer);
}

CustomerNumber NatSettings::customer_by(const NatRule& rule, Zone zone, const AddressV4& inside) {
  if (zone != 0) return zone;
  if (rule.source_groups == 0) return number_of(prefix_of(inside, rule.customer_bits));
  const std::uint32_t hash = number_of(inside) * 0x9e3779b1U;
  const std::uint64_t group = std::uint64_t{hash} * rule.source_groups >> 32;
  return SourceGroup{rule.number_of_pool, static_cast<std::uint32_t>(group)}.number();
}

std::optional<NatSettings::Shared> NatSettings::shared_customer() const {
  // Between two of these numbers, all addresses have the same rule.
  std::vector<std::uint32_t> bounds;
  const auto add = [&bounds](const Prefix<AddressV4>& prefix) {
    bounds.push_back(number_of(prefix.address));
    if (prefix.bits != 0) bounds.push_back(bounds.back() + addresses_in(prefix));
  };
  for (const NatRule& rule : rules) {
    if (rule.customers.empty()) std::ranges::for_each(rule.sources, add);
  }
  for (const NatPool& pool : pools) std::ranges::for_each(pool.prefixes, add);
  std::ranges::sort(bounds);
  const auto again = std::ranges::unique(bounds);
  bounds.erase(again.begin(), again.end());
  // Only the first customer behind a bound can be known by an address before it, so he is the only
  // one that a rule for earlier addresses may have, too: as its first one there, or by his address.
  std::map<CustomerNumber, const NatRule*> firsts;
  for (const std::uint32_t bound : bounds) {
    const NatRule* const rule = rule_of(0, address_with(bound));
    if (rule == nullptr || rule->source_groups != 0) continue;
    const CustomerNumber customer = customer_by(*rule, 0, address_with(bound));
    const NatRule* const first = firsts.emplace(customer, rule).first->second;
    for (const NatRule* const other : {first, rule_of(0, address_with(customer))}) {
      if (other != nullptr && other->customer_bits != rule->customer_bits &&
          customer_by(*other, 0, address_with(customer)) == customer)
        return Shared{customer, rule, other};
    }
  }
  return std::nullopt;
}

std::optional<CustomerNumber> NatSettings::customer_by_place(const AddressV4& address,
                                                             std::uint16_t port) const {
  const NatPool* const pool = pool_with(address);
  if (pool == nullptr || !pool->is_deterministic) return std::nullopt;
  return pool->customer_of(address, port);
}

const NatPool* NatSettings::pool_with(const AddressV4& address) const {
  const auto at =
      std::ranges::find_if(pools, [&](const NatPool& pool) { return pool.has(address); });
  return at == pools.end() ? nullptr : &*at;
}

std::optional<CustomerNumber> NatSettings::customer_named(const std::string& name) const {
  const auto tunnels = customers->named(name);
  if (tunnels && tunnels->second == tunnels->first + 1) return tunnels->first;
  for (const NatRule& rule : rules) {
    const std::string pool = pools[rule.pool].name + "/";
    if (rule.source_groups == 0 || !name.starts_with(pool)) continue;
    const auto group =
        parse_number(std::string_view(name).substr(pool.size()), rule.source_groups - 1);
    if (group) return SourceGroup{rule.number_of_pool, *group}.number();
  }
  // Another customer is known by an address inside, or by his prefix.
  constexpr unsigned kAll = 8 * AddressV4::kBytes;
  const std::string_view text = name;
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto address = parse_address<AddressV4>(text.substr(0, slash));
  const auto bits = slash == text.size() ? kAll : parse_number(text.substr(slash + 1), kAll);
  if (!address || !bits) return std::nullopt;
  const NatRule* const rule = rule_of(0, *address);
  if (rule == nullptr && *bits == kAll) return std::nullopt;
  const CustomerNumber is = rule != nullptr ? customer_by(*rule, 0, *address) : number_of(*address);
  const Prefix<AddressV4> prefix{prefix_of(*address, *bits), *bits};
  if (*bits != kAll && name_of(is) != to_string(prefix)) return std::nullopt;
  return is;
}

const FunctionKind& NatSettings::kind() const { return nat_kind(); }

FunctionFacts NatSettings::facts() const {
  return {.counts = {{"NAT pool", pools.size()},
                     {"NAT rule", rules.size()},
                     {"NAT forward", forwards.all().size()}},
          .missing = rules.empty() ? "no rule of NAT: give [[nat.rule]] with source and pool" : "",
          .counts_nothing = {},
          .drops_unmatched = {},
          // Customers of a deterministic pool have their ports for good.
          .needs_grants = !std::ranges::all_of(pools, &NatPool::is_deterministic),
          .has_replies = true,
          .guards_host = false,
          // RFC 5382, REQ-5; RFC 7857, 2.2; RFC 4787, REQ-5 c.
          .timeouts = {
              {"tcp_last_ack", 240}, {"tcp_time_wait", 240}, {"tcp_close", 240}, {"udp", 300}}};
}

std::string NatSettings::agreement() const {
  return "nat " + customers_as_json().dump();  // customers' numbers, which choose shards
}

Json NatSettings::customers_as_json() const {
  Json all = Json::array();
  for (const CustomerGroup& group : customers->groups()) {
    const std::string& port = ports[group.link];
    if (!group.vlans.is_empty()) {
      all.push_back({{"port", port}, {"vlans", to_string(group.vlans)}, {"name", group.name}});
    } else {
      all.push_back({{"port", port},
                     {"ends", to_string(group.ends)},
                     {"key", group.key ? Json(*group.key) : Json()},
                     {"name", group.name}});
    }
  }
  return all;
}

std::vector<std::string> NatSettings::unchangeable(const FunctionSettings& is) const {
  const auto& other = static_cast<const NatSettings&>(is);
  if (log != other.log) return {"nat.log"};
  return {};
}

void NatSettings::append_doubts(const Surroundings& around, std::vector<std::string>& all) const {
  for (std::size_t n = 0; n < pools.size(); ++n) {
    const auto uses = [n](const NatRule& rule) { return rule.pool == n; };
    if (std::ranges::none_of(rules, uses))
      all.push_back("no rule of NAT uses the pool \"" + pools[n].name + "\"");
  }
  const auto is_for = [](const NatRule& rule) { return !rule.customers.empty(); };
  if (!customers->empty() && std::ranges::none_of(rules, is_for))
    all.emplace_back(
        "no rule of NAT is for the customers behind tunnels and in VLANs, so nothing of theirs "
        "leaves: give a [[nat.rule]] with customers = \"any\"");
  if (log.refuses && log.file.empty())
    all.emplace_back(
        "nat.log.on_failure is \"refuse\", but IPFIX over UDP does not tell whether a record has "
        "arrived: give nat.log.file, too");
  for (const NatForward& forward : forwards.all()) {
    if (zone_of(forward.customer) == 0 && std::ranges::binary_search(hosts, forward.inside))
      all.push_back("the forward of " + forward.public_text() +
                    " leads to millrace's own address " + to_string(forward.inside) +
                    ", where nothing takes it: give a customer's");
  }
  for (const Route<AddressV4>& route : around.v4.routes) {
    for (const NatPool& pool : pools) {
      if (route.via && pool.has(*route.via))
        all.push_back("the pool \"" + pool.name + "\" has the address of a router, " +
                      to_string(*route.via) +
                      ", and millrace would answer ARP for it: leave it out");
    }
  }
  // A kernel beside millrace that has one of these addresses takes ports for its own connections.
  for (const AddressV4& address : own) {
    const auto at =
        std::ranges::find(around.v4.own, address, [](const auto& one) { return one.address; });
    if (at != around.v4.own.end() && at->link < around.ports.size() &&
        around.ports[at->link].has_kernel)
      all.push_back(
          "the kernel beside millrace has the address " + to_string(address) +
          " of a pool: leave the ports of net.ipv4.ip_local_port_range out of the pool's");
  }
}

/// Public addresses are answered for on their link, and packets to them go no further.
void NatSettings::tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>&) const {
  const auto tell_of = [&](const AddressV4& address) {
    if (std::ranges::binary_search(own, address)) {
      v4.served.push_back({address, 8 * AddressV4::kBytes});
    } else {
      v4.virtual_addresses.push_back(address);
    }
  };
  const auto is_pools = [this](const AddressV4& address) {
    return std::ranges::any_of(pools, [&](const NatPool& pool) { return pool.has(address); });
  };
  for (const NatPool& pool : pools) {
    for (const Prefix<AddressV4>& prefix : pool.prefixes) {
      for (std::uint32_t n = 0; n < addresses_in(prefix); ++n) tell_of(address_in(prefix, n));
    }
  }
  for (const AddressV4& address : forwards.addresses()) {
    if (!is_pools(address)) tell_of(address);
  }
}

std::shared_ptr<const FunctionSettings> default_nat() {
  auto settings = std::make_shared<NatSettings>();
  settings->index();
  return settings;
}

}  // namespace millrace
