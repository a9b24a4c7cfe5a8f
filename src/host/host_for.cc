// The part of `HostFor` that routes packets and keeps neighbours. Answers to packets for the host
// itself are in host_answers.cc.
#include "host/host_for.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "core/address.h"
#include "core/protocol.h"
#include "host/addresses_of.h"
#include "host/division.h"
#include "host/ethernet.h"
#include "host/hop_limit.h"
#include "host/listening.h"
#include "parse/rewrite.h"

namespace millrace {
namespace {

/// Returns the headers relative to an Ethernet header that stands directly before the IP header.
Headers behind_ethernet(Headers headers) {
  const unsigned from = headers.l3 - kEthernetHeader;
  headers.l3 = kEthernetHeader;
  headers.l4 = static_cast<std::uint16_t>(headers.l4 - from);
  headers.l4_end = static_cast<std::uint16_t>(headers.l4_end - from);
  return headers;
}

}  // namespace

template <class A>
HostFor<A>::HostFor(HostCommon& common, const HostTables<A>& tables, std::uint32_t seed)
    : common_(common), tables_(&tables), neighbours_(seed) {
  parts_.reserve(Division::kMostFragments);
}

template <class A>
void HostFor<A>::update(const HostTables<A>& tables) {
  tables_ = &tables;
  neighbours_.keep_none();
  rivals_.clear();
}

template <class A>
void HostFor<A>::announce(Wire& wire) {
  const auto send = [&](unsigned link, const auto& write) {
    const HostLink& on = common_.links[link];
    Outgoing frame = on.has_neighbours ? wire.make(kNoticeBytes) : Outgoing{};
    if (frame.data == nullptr) return;
    frame.length = write(frame.data, on.mac);
    frame.link = static_cast<std::uint8_t>(link);
    common_.send_own(frame, wire);
  };
  const auto say = [&](const A& address, unsigned link) {
    send(link, [&](std::byte* to, const Mac& mac) {
      return write_answer(to, mac, address, A{}, kBroadcast);
    });
  };
  const auto probe = [&](const A& address, unsigned link) {
    send(link, [&](std::byte* to, const Mac& mac) {
      return write_question(to, mac, A{}, address, nullptr);
    });
  };
  for (const auto& own : tables_->addresses.own) say(own.address, own.link);
  if (!common_.is_active) return;
  for (const A& address : tables_->addresses.virtual_addresses) {
    for (const auto& own : tables_->addresses.own) {
      if (prefix_of(address, own.bits) != prefix_of(own.address, own.bits)) continue;
      probe(address, own.link);
      say(address, own.link);
    }
  }
}

template <class A>
void HostFor<A>::keep(Tick now, Wire& wire) {
  Listening listener(*this, wire, now);
  const auto keep = [&](unsigned link, const A& address) {
    if (link < common_.links.size() && common_.links[link].has_neighbours)
      neighbours_.keep({link}, address, now, listener);
  };
  for (const auto& [address, link, mac] : tables_->addresses.neighbours)
    neighbours_.make_permanent({link}, address, mac, now, listener);
  for (const Route<A>& route : tables_->routes.all()) {
    if (route.via) keep(route.link, *route.via);
  }
  for (const A& destination : tables_->addresses.destinations) {
    const Route<A>* route = tables_->routes.find(destination);
    if (route != nullptr) keep(route->link, route->via.value_or(destination));
  }
}

template <class A>
void HostFor<A>::tick(Tick now, Wire& wire) {
  Listening listener(*this, wire, now);
  neighbours_.tick(now, listener);
}

template <class A>
void HostFor<A>::append_known(std::vector<KnownNeighbour>& all) const {
  neighbours_.for_each_known([&all](const Neighbourhood& on, const A& address, const Mac& mac) {
    all.push_back({on.link, address, mac, on.customer});
  });
}

template <class A>
void HostFor<A>::append_silent(std::vector<SilentNeighbour>& all) const {
  neighbours_.for_each_silent(
      [&all](const Neighbourhood& on, const A& address) { all.push_back({on.link, address}); });
}

template <class A>
void HostFor<A>::append_rivals(std::vector<Rival>& all) const {
  const std::size_t first = all.size();
  for (const KnownNeighbour& one : rivals_)
    all.push_back({.link = one.link, .address = one.address, .mac = one.mac, .neighbour = {}});
  if (rivals_.empty()) return;
  neighbours_.for_each_known([&](const Neighbourhood& on, const A& its, const Mac& its_mac) {
    if (is_on_every_link(its)) return;
    for (Rival& rival : std::span(all).subspan(first)) {
      if (rival.link == on.link && rival.mac == its_mac) rival.neighbour = its;
    }
  });
}

template <class A>
WayTo HostFor<A>::way_to(const A& destination, Zone customer) const {
  using enum WayTo::Kind;
  if (is_group(destination)) return {.kind = group, .next_hop = {}};
  const auto access = common_.tunnels->access_of(customer);
  const Route<A>* const route = tables_->find(destination, access ? access->link : kNoLink);
  if (route == nullptr) return {.kind = nowhere, .next_hop = {}};
  if (route->link >= kGroup) return {.kind = route->link == kLocal ? here : group, .next_hop = {}};
  const A hop = route->via.value_or(destination);
  return {.kind = next_hop,
          .link = route->link,
          .next_hop = hop,
          .is_silent = neighbours_.is_silent({route->link}, hop)};
}

template <class A>
void HostFor<A>::know(const Neighbourhood& on, const A& address, const Mac& mac, Tick now,
                      Wire& wire) {
  Listening listener(*this, wire, now);
  neighbours_.asked_by(on, address, mac, now, listener);
}

/// Returns the next hop that a function has chosen; none if it has chosen none.
template <class A>
std::optional<A> HostFor<A>::next_hop(const Handling& h) {
  if ((h.burst.has_next_hop >> h.i & 1) == 0) return std::nullopt;
  return h.burst.template next_hops<A>()[h.i];
}

/// Lowers the MSS of a SYN to what the links' settings allow.
template <class A>
void HostFor<A>::limit_mss(const Handling& h, unsigned link) const {
  constexpr unsigned kHeaders = A::kBytes == 4 ? 40 : 60;  // of IP and TCP, without options
  const std::array both{&common_.links[h.came_on()], &common_.links[link]};
  unsigned most = HostLink::kMssOfLinks;
  for (const HostLink* one : both) {
    if (one->mss != HostLink::kMssOfLinks) {
      if (one->mss != 0) most = std::min<unsigned>(most, one->mss);
      continue;
    }
    for (const HostLink* fits : both) {
      const unsigned headers = kHeaders + fits->tunnel_overhead;
      most = std::min(most, std::max(fits->mtu, headers + 1) - headers);
    }
  }
  if (most != HostLink::kMssOfLinks)
    clamp_mss(h.packet(), h.headers(), static_cast<std::uint16_t>(most));
}

/// Returns the way of packets to that customer; none if there is no such customer.
template <class A>
auto HostFor<A>::to_customer(Zone customer) const -> std::optional<ToCustomer> {
  const auto access = common_.tunnels->access_of(customer);
  if (!access) return std::nullopt;
  if (access->vlan == 0) return ToCustomer{*access, &tables_->routes, 0};
  const auto* const inside = tables_->inside(access->link);
  if (inside == nullptr) return std::nullopt;
  return ToCustomer{*access, &inside->routes, customer};
}

template <class A>
After HostFor<A>::route(Handling& h) {
  std::byte* const packet = h.packet();
  const Headers& headers = h.headers();
  std::optional<A> chosen;
  if (h.burst.has_next_hop != 0) [[unlikely]]
    chosen = next_hop(h);
  if (is_answered(h.verdict())) return turn_away(h);
  const auto* routes = h.verdict() == Verdict::passed ? &tables_->beyond : &tables_->routes;
  std::optional<ToCustomer> to;
  if constexpr (A::kBytes == 4) {
    if ((h.burst.to_customer >> h.i & 1) != 0) [[unlikely]] {
      to = to_customer(h.burst.customer[h.i]);
      if (!to) {
        h.verdict() = Verdict::no_customer;
        return After::stays;
      }
      routes = to->routes;
      if (to->in_vlan == 0) chosen = to->access.end;
    }
  }
  const A destination = chosen ? *chosen : destination_of<A>(packet, headers);
  const bool is_from_customer = (h.burst.from_customer >> h.i & 1) != 0;
  const Route<A>* const route =
      is_from_customer ? tables_->find(destination, h.came_on()) : routes->find(destination);
  if ((route != nullptr && route->link >= kGroup) || !is_one_host(destination) ||
      is_on_every_link(destination)) [[unlikely]]
    return answer(h);
  // Neighbour discovery never leaves its link. Besides, other workers may be reading the packet.
  if (h.verdict() == Verdict::icmp_control &&
      read_discovery({packet, h.burst.length[h.i]}, headers)) [[unlikely]] {
    h.verdict() = Verdict::not_ours;
    return After::stays;
  }
  if (!h.forward) return After::stays;
  // Replies could not find the way back.
  if (is_from_customer) [[unlikely]] {
    h.verdict() = Verdict::untranslated;
    return After::stays;
  }
  const std::uint8_t hops = hop_limit(packet, headers);
  if (hops <= 1) return refuse(h, Verdict::hop_limit, IcmpError::hop_limit);
  // A router would route the packet by its destination, and so back here, in a loop.
  const bool is_beyond_router = chosen && !to && route != nullptr && route->via;
  if (route == nullptr || is_beyond_router)
    return refuse(h, Verdict::no_route, IcmpError::no_route);
  const unsigned missing = h.burst.wire_length[h.i] - h.burst.length[h.i];
  const auto bytes = static_cast<unsigned>(headers.l4_end - headers.l3);
  const unsigned mtu = common_.links[route->link].mtu - (to ? Tunnels::overhead(to->access) : 0);
  const bool is_too_big = bytes + missing > mtu;
  if (is_too_big && (missing != 0 || !may_be_divided(packet, headers, mtu)))
    return refuse(h, Verdict::too_big, IcmpError::too_big, mtu);
  if (common_.limits_mss && headers.protocol == kProtocolTcp) [[unlikely]]
    limit_mss(h, route->link);
  decrement_hop_limit(packet, headers);
  h.out = {.handle = h.burst.handle[h.i],
           .data = packet + headers.l3 - kEthernetHeader,
           .length = static_cast<std::uint16_t>(bytes + kEthernetHeader),
           .link = static_cast<std::uint8_t>(route->link)};
  if (is_too_big && !divide(h, mtu)) {
    h.verdict() = Verdict::no_buffer;
    return After::stays;
  }
  if (to) [[unlikely]] {
    common_.tunnels->wrap(h.out, to->access);
    for (Outgoing& part : parts_) common_.tunnels->wrap(part, to->access);
  }
  const Zone in_vlan = to ? to->in_vlan : 0;
  const Way way = find_way(h.out, *route, destination, in_vlan, h.now(), h.wire);
  if (way.mac != nullptr) {
    if (is_too_big) [[unlikely]]
      send_parts(h, way, in_vlan);
    return After::sent;
  }
  const bool is_as_it_came = !is_served(h.verdict());
  if (way.may_wait() && common_.hold({.frame = h.out,
                                      .headers = behind_ethernet(headers),
                                      .neighbour = way.id,
                                      .came_on = h.came_on(),
                                      .is_v4 = A::kBytes == 4,
                                      .is_as_it_came = is_as_it_came,
                                      .customer = in_vlan})) {
    h.verdict() = Verdict::held;
    send_parts(h, way, in_vlan);
    return After::taken;
  }
  for (const Outgoing& part : parts_) h.wire.drop(part.handle);
  parts_.clear();
  if (is_as_it_came) return refuse(h, Verdict::unresolved, IcmpError::host_unreachable);
  h.verdict() = Verdict::unresolved;
  return After::stays;
}

/// Divides the packet in `h.out`, which becomes the first fragment; the others wait in `parts_`.
/// False: there is no memory for them, and nothing is changed.
template <class A>
bool HostFor<A>::divide(const Handling& h, unsigned mtu) {
  const Division division(h.out.data + kEthernetHeader, h.out.length - kEthernetHeader, mtu);
  for (unsigned n = 1; n < division.count(); ++n) {
    const unsigned bytes = kEthernetHeader + division.bytes(n);
    Outgoing part = h.wire.make(bytes);
    if (part.data == nullptr) {
      for (const Outgoing& made : parts_) h.wire.drop(made.handle);
      parts_.clear();
      return false;
    }
    division.write(n, part.data + kEthernetHeader);
    part.length = static_cast<std::uint16_t>(bytes);
    part.link = h.out.link;
    parts_.push_back(part);
  }
  division.make_first();
  h.out.length = static_cast<std::uint16_t>(kEthernetHeader + division.bytes(0));
  return true;
}

/// Sends the other fragments of the packet in `h.out` behind it, or holds them like it.
template <class A>
void HostFor<A>::send_parts(const Handling& h, const Way& way, Zone in_vlan) {
  for (const Outgoing& part : parts_) {
    std::memcpy(part.data, h.out.data, kEthernetHeader);
    if (way.mac != nullptr) {
      common_.send_own(part, h.wire);
    } else if (!common_.hold({.frame = part,
                              .headers = {},
                              .neighbour = way.id,
                              .came_on = h.came_on(),
                              .is_v4 = A::kBytes == 4,
                              .is_own = true,
                              .customer = in_vlan})) {
      h.wire.drop(part.handle);
    }
  }
  parts_.clear();
}

/// Finds the next hop's MAC, and writes the Ethernet header; its destination is 0 if the MAC is
/// unknown or the link has no neighbours. `in_vlan`: the customer in whose VLAN the next hop is,
/// for which the frame is wrapped; 0: none.
template <class A>
auto HostFor<A>::find_way(const Outgoing& frame, const Route<A>& route, const A& destination,
                          Zone in_vlan, Tick now, Wire& wire) -> Way {
  static constexpr Mac kNobody{};
  const HostLink& link = common_.links[route.link];
  Way way{.mac = &kNobody};
  if (link.has_neighbours) {
    Listening listener(*this, wire, now);
    way =
        neighbours_.use({route.link, in_vlan}, route.via ? *route.via : destination, now, listener);
  }
  constexpr std::uint16_t kType = A::kBytes == 4 ? kEtherTypeV4 : kEtherTypeV6;
  write_ethernet(frame.data, way.mac != nullptr ? *way.mac : kNobody, link.mac,
                 in_vlan == 0 ? kType : std::uint16_t{detail::kVlan});
  return way;
}

/// Sends a frame that the host made to its destination, into a customer's tunnel or VLAN if that is
/// given, or holds it until the next hop is known. What goes to an address of the host itself comes
/// in: a packet that a customer sent to another one's public address (hairpinning) is answered at
/// the customer's own public address.
/// False: the host can do nothing of this.
template <class A>
bool HostFor<A>::send_to(Outgoing frame, A destination, unsigned came_on, Tick now, Wire& wire,
                         Zone customer) {
  const Routes<A>* routes = &tables_->routes;
  Zone in_vlan = 0;
  if constexpr (A::kBytes == 4) {
    if (customer != 0) {
      const auto to = to_customer(customer);
      if (!to) return false;
      common_.tunnels->wrap(frame, to->access);
      routes = to->routes;
      in_vlan = to->in_vlan;
      if (in_vlan == 0) destination = to->access.end;
    }
  }
  const Route<A> same_link{.prefix = {}, .link = came_on};
  const Route<A>* route = is_on_every_link(destination) ? &same_link : routes->find(destination);
  if (route != nullptr && route->link == kLocal && customer == 0) {
    write_ethernet(frame.data, {}, {}, A::kBytes == 4 ? kEtherTypeV4 : kEtherTypeV6);
    frame.link = static_cast<std::uint8_t>(came_on);
    wire.take_in(frame);
    return true;
  }
  if (route == nullptr || route->link >= kGroup) return false;
  frame.link = static_cast<std::uint8_t>(route->link);
  const Way way = find_way(frame, *route, destination, in_vlan, now, wire);
  if (way.mac == nullptr) {
    return way.may_wait() && common_.hold({.frame = frame,
                                           .headers = {},
                                           .neighbour = way.id,
                                           .came_on = came_on,
                                           .is_v4 = A::kBytes == 4,
                                           .is_own = true,
                                           .customer = in_vlan});
  }
  common_.send_own(frame, wire);
  return true;
}

template class HostFor<AddressV4>;
template class HostFor<AddressV6>;

}  // namespace millrace
