// The part of `HostFor` that answers packets to the host itself, and sends errors about packets
// that go no further.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/address.h"
#include "core/protocol.h"
#include "host/addresses_of.h"
#include "host/datagram.h"
#include "host/ethernet.h"
#include "host/host_for.h"
#include "host/listening.h"
#include "host/tcp_reset.h"
#include "parse/rewrite.h"

namespace millrace {
namespace {

/// Returns a packet's key as it arrived and as the line rewrote it; none if the packet has no key.
template <class A>
std::optional<RewrittenKey<A>> keys_of(Burst& burst, unsigned packet) {
  const auto& lane = burst.lane<Key<A>>();
  for (unsigned i = 0; i < lane.size; ++i) {
    if (lane.packet[i] == packet) return RewrittenKey<A>{lane.key[i], lane.leaving(i)};
  }
  return std::nullopt;
}

}  // namespace

template <class A>
After HostFor<A>::answer(Handling& h) {
  const Headers& headers = h.headers();
  std::byte* const packet = h.packet();
  const auto source = source_of<A>(packet, headers);
  const auto destination = destination_of<A>(packet, headers);
  const Route<A>* const route = (h.burst.from_customer >> h.i & 1) != 0
                                    ? tables_->find(destination, h.came_on())
                                    : tables_->routes.find(destination);
  const bool is_to_one = route != nullptr && route->link == kLocal;
  const bool is_to_group = is_group(destination) || (route != nullptr && route->link == kGroup);
  if (!is_to_one && !is_to_group) {
    h.verdict() = Verdict::unroutable;
    return After::stays;
  }
  if constexpr (A::kBytes == 16) {
    if (const auto notice = read_discovery({packet, h.burst.length[h.i]}, headers)) {
      hear(*notice, {h.came_on()}, true, h.now(), h.wire);
      if (common_.links[h.came_on()].has_kernel && concerns_kernel(*notice))
        h.wire.show_to_kernel(h.burst.handle[h.i], h.came_on());
      h.verdict() = Verdict::consumed;
      return After::stays;
    }
  }
  if (is_for_kernel(h, destination)) return give_to_kernel(h);
  if (h.verdict() != Verdict::no_service || !is_to_one) {
    h.verdict() = Verdict::not_ours;
    return After::stays;
  }
  auto fragment = read_fragment<A>(packet, headers);
  if (fragment) fragment->datagram.customer = h.burst.customer_of(h.i);
  if (is_echo_request(packet, headers) && is_one_host(source)) {
    if (fragment) answered_pings_.note(fragment->datagram, h.now());
    make_echo_reply(packet, headers);
    return send_back(h, source);
  }
  if (fragment && !fragment->is_first() && answered_pings_.contains(fragment->datagram, h.now())) {
    swap_ends(packet, headers);
    return send_back(h, source);
  }
  return refuse(h, Verdict::not_ours, IcmpError::port_unreachable);
}

/// True for a packet that goes to the kernel: it came on a link with a kernel interface, no service
/// takes it, and it is addressed to the host, a link-local group or all stations on the link.
template <class A>
bool HostFor<A>::is_for_kernel(const Handling& h, const A& destination) const {
  if (!common_.links[h.came_on()].has_kernel || is_served(h.verdict()) ||
      h.burst.customer_of(h.i) != 0)
    return false;
  if (is_own(destination) || is_group_of_link(destination)) return true;
  const Route<A>* const route = tables_->routes.find(destination);
  return route != nullptr && route->link == kGroup;
}

template <class A>
After HostFor<A>::give_to_kernel(Handling& h) {
  const bool is_given = h.wire.give_to_kernel(h.burst.handle[h.i], h.came_on());
  h.verdict() = is_given ? Verdict::consumed : Verdict::kernel_full;
  return is_given ? After::taken : After::stays;
}

/// Sends the packet, which was turned into a reply, back to `to`.
template <class A>
After HostFor<A>::send_back(Handling& h, const A& to) {
  const Headers& headers = h.headers();
  std::byte* const packet = h.packet();
  h.verdict() = Verdict::consumed;
  const Outgoing frame{
      .handle = h.burst.handle[h.i],
      .data = packet + headers.l3 - kEthernetHeader,
      .length = static_cast<std::uint16_t>(headers.l4_end - headers.l3 + kEthernetHeader)};
  return send_to(frame, to, h.came_on(), h.now(), h.wire, h.burst.customer_of(h.i)) ? After::taken
                                                                                    : After::stays;
}

/// Tells a packet's sender that the packet is refused, by a RST or an ICMP error.
template <class A>
After HostFor<A>::turn_away(Handling& h) {
  const std::span<const std::byte> packet(h.packet(), h.burst.length[h.i]);
  const Verdict why = h.verdict();
  if (h.headers().protocol != kProtocolTcp || !is_reset(why)) {
    return refuse(h, why,
                  why == Verdict::refused ? IcmpError::port_unreachable : IcmpError::prohibited);
  }
  if (may_answer_with_error<A>(packet, h.headers())) {
    if (auto reset = answering_reset<Key<A>>(h.packet(), h.headers())) {
      reset->key.set_zone(h.burst.customer_of(h.i));
      tell(*reset, h.now(), h.wire);
    }
  }
  return After::stays;
}

template <class A>
void HostFor<A>::tell(const Reset<Key<A>>& reset, Tick now, Wire& wire) {
  Outgoing frame = wire.make(kEthernetHeader + kResetBytes<A>);
  if (frame.data == nullptr) return;
  write_reset(frame.data + kEthernetHeader, reset);
  frame.length = kEthernetHeader + kResetBytes<A>;
  if (!send_to(frame, reset.key.destination, 0, now, wire, reset.key.number_of_zone()))
    wire.drop(frame.handle);
}

template <class A>
bool HostFor<A>::send(const Key<A>& ends, std::span<const std::byte> payload, Tick now,
                      Wire& wire) {
  const std::size_t bytes = kEthernetHeader + kDatagramHead<Key<A>> + payload.size();
  Outgoing frame = wire.make(static_cast<unsigned>(bytes));
  if (frame.data == nullptr) return false;
  write_datagram(frame.data + kEthernetHeader, ends, payload);
  frame.length = static_cast<std::uint16_t>(bytes);
  const bool is_sent = send_to(frame, ends.destination, 0, now, wire);
  if (!is_sent) wire.drop(frame.handle);
  return is_sent;
}

template <class A>
void HostFor<A>::hear(const Notice<A>& notice, const Neighbourhood& on, bool answers, Tick now,
                      Wire& wire) {
  Listening listener(*this, wire, now);
  const bool is_own = is_answered_on(notice.target, on.link);
  if (!notice.is_question) {
    if (is_own) note_rival(notice, on);
    if (!is_own && notice.mac)
      neighbours_.advertised(on, notice.target,
                             {*notice.mac, notice.is_solicited, notice.overrides}, now, listener);
    return;
  }
  if (!is_own || !answers) return;
  const bool is_neighbour = is_neighbour_on(notice.sender, on);
  if (is_neighbour && notice.mac)
    neighbours_.asked_by(on, notice.sender, *notice.mac, now, listener);
  std::optional<Mac> to = notice.mac;
  if (!to && is_neighbour) {  // a question to one station may omit the sender's MAC
    const auto way = neighbours_.use(on, notice.sender, now, listener);
    if (way.mac == nullptr) return;
    to = *way.mac;
  }
  Outgoing frame = wire.make(kNoticeBytes);
  if (frame.data == nullptr) return;
  frame.length = write_answer(frame.data, common_.links[on.link].mac, notice.target, notice.sender,
                              to.value_or(kBroadcast));
  common_.send_on(on, frame, wire);
}

/// Remembers a station that answers for an address of the host. Customers' stations are left out:
/// each could fill the list.
template <class A>
void HostFor<A>::note_rival(const Notice<A>& notice, const Neighbourhood& on) {
  constexpr std::size_t kMost = 64;
  constexpr std::ptrdiff_t kMostEach = 4;  // forged answers for one address leave room for others
  if (!notice.mac || on.customer != 0 || rivals_.size() >= kMost) return;
  const auto is_ours = [&](const HostLink& one) { return one.mac == *notice.mac; };
  const auto has_address = [&](const KnownNeighbour& one) {
    return one.address == AnyAddress(notice.target);
  };
  const auto is_known = [&](const KnownNeighbour& one) {
    return has_address(one) && one.link == on.link && one.mac == *notice.mac;
  };
  if (std::ranges::any_of(common_.links, is_ours) || std::ranges::any_of(rivals_, is_known) ||
      std::ranges::count_if(rivals_, has_address) >= kMostEach)
    return;
  rivals_.push_back({on.link, notice.target, *notice.mac});
}

template <class A>
bool HostFor<A>::is_answered_on(const A& address, unsigned link) const {
  const bool is_own_here = std::ranges::any_of(tables_->own_on(link), [&](const auto& own) {
    return own.link == link && own.address == address;
  });
  return (is_virtual(address) && common_.is_active) ||
         (is_own_here && !common_.links[link].has_kernel);
}

template <class A>
std::uint64_t HostFor<A>::keep_for_host(Burst& burst, const Steering& steering) const {
  std::uint64_t kept = 0;
  const auto& lane = burst.lane<Key<A>>();
  for (unsigned i = 0; i < lane.size; ++i) {
    if (lane.connection[i] != ConnId::none || !is_for_host(lane.key[i], steering)) continue;
    burst.verdict[lane.packet[i]] = Verdict::no_service;
    kept |= std::uint64_t{1} << lane.packet[i];
  }
  return kept;
}

template <class A>
bool HostFor<A>::is_rewritten(Burst& burst, unsigned packet) {
  const auto keys = keys_of<A>(burst, packet);
  return (burst.has_next_hop >> packet & 1) != 0 || (keys && keys->was != keys->is);
}

template <class A>
std::uint64_t HostFor<A>::errors_for_kernel(Burst& burst, const Steering& steering) const {
  std::uint64_t found = 0;
  const auto& lane = burst.quoted<Key<A>>();
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if (burst.customer_of(packet) == 0 &&
        is_own(destination_of<A>(burst.data[packet], burst.headers[packet])))
      found |= std::uint64_t{is_for_host(lane.key[i], steering)} << packet;
  }
  return found;
}

template <class A>
std::uint64_t HostFor<A>::to_own(const Burst& burst) const {
  std::uint64_t found = 0;
  const auto add = [&](unsigned packet, const A& to) {
    if (tables_->local.may_contain(to) != 0 && is_own(to)) found |= std::uint64_t{1} << packet;
  };
  const auto& lane = of_family<A>(burst.v4, burst.v6);
  for (unsigned i = 0; i < lane.size; ++i) {
    add(lane.packet[i], lane.key[i].destination);
    if (lane.key[i].number_of_zone() != 0 && is_own_for_customer(lane.key[i]))
      found |= std::uint64_t{1} << lane.packet[i];
  }
  const auto& errors = of_family<A>(burst.quoted_v4, burst.quoted_v6);
  for (unsigned i = 0; i < errors.size; ++i) {
    const unsigned packet = errors.packet[i];
    add(packet, destination_of<A>(burst.data[packet], burst.headers[packet]));
  }
  return found;
}

/// True if a service takes a packet with this key. False for a backend's packet to the host or to a
/// virtual address: such a packet is a reply to a health check of the kernel, not to a client.
template <class A>
bool HostFor<A>::belongs_to_service(const Key<A>& key, const Steering& steering) const {
  if (tables_->served.find(key.destination) == nullptr) return false;
  const Steered steered = steering.steer({&key, 1});
  return steered.is_by_source(0) || steered.is_by_owner(0);
}

template <class A>
bool HostFor<A>::is_own(const A& address) const {
  const auto& all = tables_->addresses.own;
  return std::ranges::any_of(all, [&](const auto& own) { return own.address == address; });
}

/// True for a packet from a customer in a VLAN to an address that the host has there.
template <class A>
bool HostFor<A>::is_own_for_customer(const Key<A>& key) const {
  if (key.number_of_zone() == 0) return false;
  const auto access = common_.tunnels->access_of(key.number_of_zone());
  const auto* const inside = access ? tables_->inside(access->link) : nullptr;
  const auto is_it = [&key](const auto& own) { return own.address == key.destination; };
  return inside != nullptr && std::ranges::any_of(inside->own, is_it);
}

template <class A>
bool HostFor<A>::is_virtual(const A& address) const {
  const auto& all = tables_->addresses.virtual_addresses;
  return std::ranges::find(all, address) != all.end();
}

template <class A>
bool HostFor<A>::is_neighbour_on(const A& address, const Neighbourhood& on) const {
  if (!is_one_host(address)) return false;
  if (is_on_every_link(address)) return true;
  const auto* const inside = tables_->inside(on.link);
  const Route<A>* route = (inside != nullptr ? inside->routes : tables_->routes).find(address);
  return route != nullptr && route->link == on.link && !route->via;
}

/// Returns the source address for an ARP request or neighbour solicitation for `target`: one of the
/// host's on this link, in the target's network if possible; the unspecified address if the link
/// has none.
template <class A>
A HostFor<A>::asker(unsigned link, const A& target) const {
  A any;
  for (const auto& own : tables_->own_on(link)) {
    if (own.link != link) continue;
    if (prefix_of(own.address, own.bits) == prefix_of(target, own.bits)) return own.address;
    if (any == A{}) any = own.address;
  }
  return any;
}

/// Ends a packet with the verdict `why`, and tells its sender by an ICMP error if `tell` may send
/// one.
template <class A>
After HostFor<A>::refuse(Handling& h, Verdict why, IcmpError error, unsigned mtu) {
  const auto sent = keys_of<A>(h.burst, h.i);
  tell(error,
       {h.packet(), h.headers(), h.burst.length[h.i], h.came_on(),
        sent ? sent->was.number_of_zone() : h.burst.customer_of(h.i), mtu},
       sent, h.now(), h.wire);
  h.verdict() = why;
  return After::stays;
}

template <class A>
void HostFor<A>::tell(IcmpError error, const About& about,
                      const std::optional<RewrittenKey<A>>& sent, Tick now, Wire& wire) {
  const bool is_unreachable = error != IcmpError::hop_limit && error != IcmpError::too_big;
  if (is_unreachable && !common_.tells_unreachable) return;
  if (!may_answer_with_error<A>({about.packet, about.length}, about.headers)) return;
  const auto source = own_address(about.came_on);
  if (!source || !common_.allowance.take(now)) return;

  std::array<std::byte, kIcmpErrorBytes<A>> quote;
  Headers headers = about.headers;
  const unsigned l3 = headers.l3;
  const std::size_t bytes = std::min<std::size_t>(headers.l4_end - l3, quote.size());
  std::memcpy(quote.data(), about.packet + l3, bytes);
  if (sent) {
    headers.l3 = 0;
    headers.l4 = static_cast<std::uint16_t>(headers.l4 - l3);
    headers.l4_end = static_cast<std::uint16_t>(bytes);
    rewrite(quote.data(), headers, sent->is, sent->was);
  }
  Outgoing frame = wire.make(kEthernetHeader + kIcmpErrorBytes<A>);
  if (frame.data == nullptr) return;
  const unsigned written =
      write_icmp_error(frame.data + kEthernetHeader, error, *source,
                       std::span<const std::byte>(quote).first(bytes), about.mtu);
  frame.length = static_cast<std::uint16_t>(kEthernetHeader + written);
  const auto to = address_at<A>(quote.data() + detail::IpOf<Key<A>>::kSource);
  if (!send_to(frame, to, about.came_on, now, wire, about.customer)) wire.drop(frame.handle);
}

/// Returns the source address of errors: one of the link on which the packet came (RFC 1812,
/// 4.3.2.4), else any; never a link-local one.
template <class A>
std::optional<A> HostFor<A>::own_address(unsigned link) const {
  std::optional<A> any;
  for (const auto& own : tables_->own_on(link)) {
    if (is_on_every_link(own.address)) continue;
    if (own.link == link) return own.address;
    if (!any) any = own.address;
  }
  return any;
}

template class HostFor<AddressV4>;
template class HostFor<AddressV6>;

}  // namespace millrace
