#include "function/firewall/zones.h"

#include <map>
#include <set>

#include "core/burst.h"

namespace millrace {
namespace {

constexpr Prefix<AddressV6> kLinkLocal{{{0xfe, 0x80}}, 10};

template <class A>
bool is_link_local(const A& address) {
  if constexpr (A::kBytes == 4)
    return false;
  else
    return prefix_of(address, kLinkLocal.bits) == kLinkLocal.address;
}

/// The prefixes of each zone.
template <class A>
using OfZones = std::vector<std::set<Prefix<A>>>;

/// Returns the zone of an address at that link; `around` are the prefixes around the address, the
/// longest first.
template <class A>
std::uint8_t zone_of(const std::vector<ZoneSpec>& specs, const OfZones<A>& prefixes,
                     const std::vector<Prefix<A>>& around, unsigned link) {
  const auto number = [](std::size_t i) { return static_cast<std::uint8_t>(kHostZone + 1 + i); };
  const auto find = [&](auto&& is_it) -> std::uint8_t {
    std::uint8_t found = kNoZone;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].has_link(link) || !is_it(i)) continue;
      if (!specs[i].links.empty()) return number(i);
      if (found == kNoZone) found = number(i);
    }
    return found;
  };
  for (const Prefix<A>& prefix : around) {
    const std::uint8_t zone = find([&](std::size_t i) { return prefixes[i].contains(prefix); });
    if (zone != kNoZone) return zone;
  }
  return find([&](std::size_t i) { return !specs[i].has_prefixes; });
}

template <class A>
std::vector<Prefix<A>> chain(const PrefixTable<A>& table, const std::vector<Prefix<A>>& all,
                             std::uint32_t i) {
  std::vector<Prefix<A>> around;
  for (; i != table.kNone; i = table.around(i)) around.push_back(all[i]);
  return around;
}

}  // namespace

template <class A>
ZonesFor<A>::ZonesFor(const std::vector<ZoneSpec>& specs, const HostAddresses<A>& host,
                      unsigned links)
    : links_(links), own_of_customers_(host.of_customers.own) {
  std::set<Prefix<A>> named;
  OfZones<A> of_zones;
  for (const ZoneSpec& spec : specs) {
    of_zones.emplace_back(spec.prefixes<A>().begin(), spec.prefixes<A>().end());
    named.insert(of_zones.back().begin(), of_zones.back().end());
  }
  const std::vector<Prefix<A>> prefixes(named.begin(), named.end());
  sources_ = PrefixTable<A>(prefixes);
  for (std::uint32_t i = 0; i <= prefixes.size(); ++i) {
    const auto around = chain(sources_, prefixes, i < prefixes.size() ? i : sources_.kNone);
    for (unsigned link = 0; link < links; ++link)
      from_.push_back(zone_of(specs, of_zones, around, link));
  }

  // The link on which packets to a prefix leave; `kHostLink`: none, they are for the host.
  std::map<Prefix<A>, unsigned> routes;
  for (const auto& own : host.own) {
    routes.emplace(Prefix<A>{own.address}, kHostLink);
    if (!is_link_local(own.address))
      routes.emplace(Prefix<A>{prefix_of(own.address, own.bits), own.bits}, own.link);
  }
  for (const A& address : broadcasts_of(host)) routes.emplace(Prefix<A>{address}, kHostLink);
  // Packets to link-local addresses are not forwarded (RFC 4291, 2.5.6): those that a port takes in
  // are for the host.
  if constexpr (A::kBytes == 16) routes.emplace(kLinkLocal, kHostLink);
  for (const A& address : host.virtual_addresses) routes.emplace(Prefix<A>{address}, kHostLink);
  for (const Route<A>& route : host.routes)
    routes.emplace(Prefix<A>{route.prefix, route.bits}, route.link);
  std::set<Prefix<A>> both = named;
  for (const auto& [prefix, link] : routes) both.insert(prefix);
  const std::vector<Prefix<A>> all(both.begin(), both.end());
  destinations_ = PrefixTable<A>(all);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const auto around = chain(destinations_, all, i);
    const auto link_beside = [&](unsigned other) -> unsigned {
      const auto route = std::ranges::find_if(around, [&](const Prefix<A>& one) {
        const auto at = routes.find(one);
        return at != routes.end() && at->second != other;
      });
      return route != around.end() ? routes.at(*route) : kNoLink;
    };
    const bool is_hosts = link_beside(kNoLink) == kHostLink;
    around_.push_back(zone_of(specs, of_zones, around, link_beside(kHostLink)));
    to_.push_back(is_hosts ? kHostZone : around_.back());
  }
  beyond_ = zone_of<A>(specs, of_zones, {}, kNoLink);
}

template <class A>
std::uint8_t ZonesFor<A>::from(const A& source, unsigned link) const {
  if (link == kHostLink) return kHostZone;
  if (link == kAgainLink) return around(source);
  if (link >= links_) return to(source);
  const std::uint32_t found = sources_.find(source);
  const std::size_t row = found == sources_.kNone ? from_.size() / links_ - 1 : found;
  return from_[row * links_ + link];
}

template class ZonesFor<AddressV4>;
template class ZonesFor<AddressV6>;

}  // namespace millrace
