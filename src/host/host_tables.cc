// The tables of a host: routes, and sets of addresses.
#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "host/addresses_of.h"
#include "host/host_for.h"

namespace millrace {
namespace {

/// Returns the routes to the host itself, to broadcast addresses and networks of links, and the
/// configured ones. Of several routes with the same prefix the first counts.
template <class A>
std::vector<Route<A>> all_routes(const HostAddresses<A>& addresses,
                                 const std::vector<A>& virtual_addresses, unsigned local,
                                 unsigned group) {
  std::vector<Route<A>> all;
  std::set<std::pair<A, unsigned>> there;
  const auto add = [&](const Route<A>& route) {
    if (there.emplace(route.prefix, route.bits).second) all.push_back(route);
  };
  constexpr unsigned kBits = 8 * A::kBytes;
  for (const auto& own : addresses.own) add({own.address, kBits, local, std::nullopt});
  for (const A& address : virtual_addresses) add({address, kBits, local, std::nullopt});
  for (const A& address : broadcasts_of(addresses)) add({address, kBits, group, std::nullopt});
  for (const auto& own : addresses.own) {
    if (!is_on_every_link(own.address))
      add({prefix_of(own.address, own.bits), own.bits, own.link, std::nullopt});
  }
  for (const Route<A>& route : addresses.routes) add(route);
  return all;
}

template <class A>
std::vector<Route<A>> served_routes(const HostAddresses<A>& addresses) {
  std::set<std::pair<A, unsigned>> prefixes;
  for (const A& address : addresses.virtual_addresses) prefixes.emplace(address, 8 * A::kBytes);
  for (const auto& [address, bits] : addresses.served) prefixes.emplace(address, bits);
  std::vector<Route<A>> all;
  for (const auto& [address, bits] : prefixes)
    all.push_back({.prefix = address, .bits = bits, .via = {}});
  return all;
}

/// Adds a link-local address on each link with neighbours if the host has IPv6 addresses.
template <class A>
HostAddresses<A> with_link_local(HostAddresses<A> addresses, const std::vector<HostLink>& links) {
  if constexpr (A::kBytes == 16) {
    const bool is_there = !addresses.own.empty();
    for (unsigned link = 0; is_there && link < links.size(); ++link) {
      if (links[link].has_neighbours && !links[link].has_customer_vlans)
        addresses.own.push_back({link_local(links[link].mac), 64, link});
    }
  }
  return addresses;
}

}  // namespace

template <class A>
HostTables<A>::HostTables(const HostAddresses<A>& given, const std::vector<HostLink>& links)
    : addresses(with_link_local(given, links)),
      routes(all_routes(addresses, addresses.virtual_addresses, kLocal, kGroup)),
      beyond(addresses.passes ? all_routes(addresses, std::vector<A>{}, kLocal, kGroup)
                              : std::vector<Route<A>>{}),
      served(served_routes(addresses)),
      local(local_addresses(addresses)) {
  for (const auto& [address, bits, link] : addresses.of_customers.own) {
    if (inside(link) != nullptr) continue;
    const auto is_there = [link](const auto& one) { return one.link == link; };
    HostAddresses<A> its;
    std::ranges::copy_if(addresses.of_customers.own, std::back_inserter(its.own), is_there);
    std::ranges::copy_if(addresses.of_customers.routes, std::back_inserter(its.routes), is_there);
    if (insides_.size() <= link) insides_.resize(link + 1);
    insides_[link] = std::make_unique<const Inside>(
        Inside{its.own, Routes<A>(all_routes(its, std::vector<A>{}, kLocal, kGroup))});
  }
}

template <class A>
std::vector<A> local_addresses(const HostAddresses<A>& addresses) {
  std::vector<A> all = addresses.virtual_addresses;
  for (const auto& own : addresses.own) all.push_back(own.address);
  return all;
}
template std::vector<AddressV4> local_addresses(const HostAddresses<AddressV4>&);
template std::vector<AddressV6> local_addresses(const HostAddresses<AddressV6>&);

template <class A>
std::vector<A> broadcasts_of(const HostAddresses<A>& addresses) {
  std::vector<A> all;
  if constexpr (A::kBytes == 4) {
    for (const auto& own : addresses.own) {
      if (own.bits > 30) continue;  // RFC 3021
      A last = own.address;
      for (unsigned bit = own.bits; bit < 32; ++bit)
        last.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80 >> bit % 8);
      all.push_back(last);
    }
  }
  return all;
}
template std::vector<AddressV4> broadcasts_of(const HostAddresses<AddressV4>&);
template std::vector<AddressV6> broadcasts_of(const HostAddresses<AddressV6>&);

namespace {

enum class Way : std::uint8_t { none, by_router, direct };

/// Returns how an address is reached.
template <class A>
Way way_of(const HostAddresses<A>& addresses, const A& address) {
  int longest = -1;
  Way way = Way::none;
  const auto look = [&](const A& prefix, unsigned bits, bool has_router) {
    if (std::cmp_less_equal(bits, longest) || prefix_of(address, bits) != prefix) return;
    longest = static_cast<int>(bits);
    way = has_router ? Way::by_router : Way::direct;
  };
  for (const auto& own : addresses.own) look(prefix_of(own.address, own.bits), own.bits, false);
  for (const Route<A>& route : addresses.routes)
    look(route.prefix, route.bits, route.via.has_value());
  return way;
}

}  // namespace

template <class A>
bool is_on_link(const HostAddresses<A>& addresses, const A& address) {
  return way_of(addresses, address) == Way::direct;
}
template bool is_on_link(const HostAddresses<AddressV4>&, const AddressV4&);
template bool is_on_link(const HostAddresses<AddressV6>&, const AddressV6&);

template <class A>
bool has_route(const HostAddresses<A>& addresses, const A& address) {
  return way_of(addresses, address) != Way::none;
}
template bool has_route(const HostAddresses<AddressV4>&, const AddressV4&);
template bool has_route(const HostAddresses<AddressV6>&, const AddressV6&);

template struct HostTables<AddressV4>;
template struct HostTables<AddressV6>;

}  // namespace millrace
