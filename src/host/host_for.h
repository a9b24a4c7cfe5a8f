// The part of a host that handles one address family.
//
// `HostFor` decides about packets and keeps the neighbours; `HostCommon` has what both families
// share: links, waiting frames, counters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/burst.h"
#include "core/counter.h"
#include "core/mac.h"
#include "core/reset.h"
#include "core/steering.h"
#include "host/answered_pings.h"
#include "host/icmp.h"
#include "host/known_addresses.h"
#include "host/neighbours.h"
#include "host/notice.h"
#include "host/routes.h"
#include "host/tunnels.h"
#include "host/wire.h"
#include "millrace/types.h"

namespace millrace {

/// A host's configuration for one address family.
template <class A>
struct HostAddresses {
  struct Own {
    A address;
    unsigned bits = 8 * A::kBytes;  ///< prefix length of the network on the link
    unsigned link = 0;
  };
  std::vector<Own> own;
  /// Addresses that the host answers for on every link.
  std::vector<A> virtual_addresses;
  /// True: a packet to a virtual address may be routed on if no service takes it
  /// (`Verdict::passed`).
  bool passes = false;
  std::vector<Route<A>> routes;  ///< routes besides the networks on the links
  /// Destinations to which packets will certainly go: the host asks for the MACs of their next hops
  /// at once, and again until they answer.
  std::vector<A> destinations;
  /// Destinations, besides the virtual addresses, of packets that services may take.
  struct Prefix {
    A address;
    unsigned bits;
  };
  std::vector<Prefix> served;
  struct Permanent {
    A address;
    unsigned link = 0;
    Mac mac;
  };
  /// Neighbours with configured MACs: the host does not ask for them, and no packet changes their
  /// MACs.
  std::vector<Permanent> neighbours;
  /// Addresses and routes of links with customers in VLANs. They hold in each of these VLANs, and
  /// for nobody else: so several links may have the same ones.
  struct OfCustomers {
    std::vector<Own> own;
    std::vector<Route<A>> routes;
  };
  OfCustomers of_customers;
};

/// The check of a packet's source (RFC 3704).
enum class ReversePath : std::uint8_t {
  off,     ///< no check
  loose,   ///< the source must have a route
  strict,  ///< the source's route must use the link on which the packet came
};

struct HostLink {
  Mac mac;
  unsigned mtu = 1500;
  /// The link has stations that answer ARP or neighbour discovery. Otherwise packets leave with the
  /// destination MAC 0.
  bool has_neighbours = true;
  ReversePath reverse_path = ReversePath::off;
  /// The largest MSS (RFC 9293, 3.7.1) in SYNs that arrive or leave on the link; 0: any.
  /// `kMssOfLinks`: what fits the MTUs of both links.
  std::uint16_t mss = 0;
  unsigned tunnel_overhead = 0;  ///< bytes that the link's tunnels add to a packet; 0: it has none
  static constexpr std::uint16_t kMssOfLinks = 0xffff;
  /// The kernel has an interface there: packets to the host's own addresses, or to all stations on
  /// the link, go to the kernel unless a service takes them.
  bool has_kernel = false;
  bool has_customer_vlans = false;  ///< all frames on the link are in the VLANs of customers
};

/// Tables of one address family that several hosts with the same links may share. They never
/// change.
template <class A>
struct HostTables {
  static constexpr unsigned kLocal = 0xffff;  ///< `link` of a route to the host itself
  static constexpr unsigned kGroup = 0xfffe;  ///< `link` of a route to all stations on a link

  HostTables(const HostAddresses<A>& given, const std::vector<HostLink>& links);

  HostAddresses<A> addresses;  ///< including the host's link-local addresses
  Routes<A> routes;  ///< configured routes, and routes to the host, broadcasts and links' networks
  Routes<A> beyond;  ///< `routes` without the virtual addresses; empty if `passes` is false
  Routes<A> served;  ///< destinations of packets that services may take
  KnownAddresses<A> local;  ///< the host's own and virtual addresses

  /// Addresses and routes in the VLANs of customers on a link.
  struct Inside {
    std::vector<typename HostAddresses<A>::Own> own;
    Routes<A> routes;
  };
  /// Returns those of that link; null: it has no customers in VLANs.
  const Inside* inside(unsigned link) const {
    return link < insides_.size() ? insides_[link].get() : nullptr;
  }
  /// Returns the host's own addresses, among them all on that link.
  const std::vector<typename HostAddresses<A>::Own>& own_on(unsigned link) const {
    const Inside* const customers = inside(link);
    return customers != nullptr ? customers->own : addresses.own;
  }
  /// Returns the destination's route for packets that came on that link, whose own addresses go
  /// before all other routes; null if there is none.
  const Route<A>* find(const A& destination, unsigned link) const {
    if (const Inside* const customers = inside(link); customers != nullptr) {
      const Route<A>* const route = customers->routes.find(destination);
      if (route != nullptr && route->link >= kGroup) return route;
    }
    return routes.find(destination);
  }

 private:
  std::vector<std::unique_ptr<const Inside>> insides_;  // by link
};

/// Returns the host's own addresses and the virtual ones.
template <class A>
std::vector<A> local_addresses(const HostAddresses<A>& addresses);

/// Returns the directed broadcast addresses of the networks on the links (RFC 919, 7); none for
/// IPv6.
template <class A>
std::vector<A> broadcasts_of(const HostAddresses<A>& addresses);

/// True if the address is reached without a router.
template <class A>
bool is_on_link(const HostAddresses<A>& addresses, const A& address);

/// True if a route, or a network on a link, contains the address.
template <class A>
bool has_route(const HostAddresses<A>& addresses, const A& address);

struct KnownNeighbour {
  unsigned link = 0;
  AnyAddress address;
  Mac mac;
  Zone customer = 0;  ///< the neighbour is in his VLAN; 0: in no customer's
};

/// A neighbour that does not answer.
struct SilentNeighbour {
  unsigned link = 0;
  AnyAddress address;
};

/// A station that answers for an address of the host.
struct Rival {
  unsigned link = 0;
  AnyAddress address;
  Mac mac;
  std::optional<AnyAddress> neighbour;  ///< another address of the station, if known
};

/// The route to a destination.
struct WayTo {
  enum class Kind : std::uint8_t {
    nowhere,   ///< no route
    here,      ///< the host's own or a virtual address
    group,     ///< multicast, or all stations on a link
    next_hop,  ///< a neighbour
  };
  Kind kind = Kind::nowhere;
  unsigned link = 0;       ///< the neighbour's link
  AnyAddress next_hop;     ///< the neighbour's address
  bool is_silent = false;  ///< the neighbour did not answer when last asked
};

/// Counters of packets that the host made, and of those that left or were dropped after their burst
/// had been counted.
struct alignas(64) HostCounters {
  Counter generated;   ///< frames sent for the kernel, and ARP, neighbour discovery, ICMP, RSTs
  Counter released;    ///< packets held until their next hop was resolved, and sent
  Counter unresolved;  ///< packets held, and dropped as their next hop did not answer
};

/// A frame that waits until a neighbour's MAC is known.
struct HeldFrame {
  Outgoing frame;
  Headers headers;  ///< offsets from `frame.data`
  std::uint32_t neighbour;
  unsigned came_on;
  bool is_v4;
  bool is_as_it_came = false;  ///< no function rewrote the frame
  bool is_own = false;         ///< the host made the frame
  Zone customer = 0;           ///< the neighbour is in his VLAN; 0: in no customer's
};

/// Rate limit of ICMP errors (RFC 1812, 4.3.2.8): a token bucket for `kAtOnce` tokens that fills by
/// `kASecond` a second.
class Allowance {
 public:
  static constexpr unsigned kASecond = 1000;
  static constexpr unsigned kAtOnce = 100;

  /// Takes a token; false if there is none.
  bool take(Tick now);

 private:
  unsigned left_ = kAtOnce;
  Tick filled_;
};

struct HostCommon {
  std::vector<HostLink> links;
  const Tunnels* tunnels = nullptr;  ///< the present plan's
  bool limits_mss = false;           ///< some link has an `mss`
  bool tells_unreachable = true;
  bool is_active = true;  ///< answers for virtual addresses, and announces them
  Allowance allowance;
  std::vector<HeldFrame> held;
  HostCounters counters;

  /// Largest numbers of frames that wait, in all and for one neighbour. With smaller limits, a
  /// process that took over lost packets to neighbours that it did not know yet.
  static constexpr std::size_t kMaxHeld = 512;
  static constexpr std::size_t kMaxHeldEach = 128;
  /// Largest number of frames that wait in the VLAN of one customer, so that there is room for
  /// those of others.
  static constexpr std::size_t kMaxHeldOfCustomer = 32;
  /// Holds a frame. False: there is no room.
  bool hold(const HeldFrame& frame);
  /// Removes and returns the frames that wait for the neighbour.
  std::vector<HeldFrame> take_held(std::uint32_t neighbour, bool is_v4);
  void send_own(const Outgoing& frame, Wire& wire);
  /// Sends a whole frame that the host made in a neighbourhood: with a tag, if that is a
  /// customer's.
  void send_on(const Neighbourhood& in, Outgoing frame, Wire& wire);
};

/// A packet's key as it arrived, and as the line rewrote it.
template <class A>
struct RewrittenKey {
  Key<A> was;
  Key<A> is;
};

/// The packet of a burst that is being routed.
struct Handling {
  Burst& burst;
  unsigned i;
  bool forward;  ///< true: the packet may go out
  Outgoing& out;
  Wire& wire;

  std::byte* packet() const { return burst.data[i]; }
  const Headers& headers() const { return burst.headers[i]; }
  Verdict& verdict() const { return burst.verdict[i]; }
  unsigned came_on() const { return burst.link[i]; }
  Tick now() const { return burst.now; }
};
enum class After : std::uint8_t {
  stays,  ///< the port keeps the packet, which goes no further
  sent,   ///< the packet goes out as `out` says
  taken,  ///< the host or the wire owns the packet
};

template <class A>
class HostFor {
 public:
  /// `tables` must stay valid until the next `update` or the destruction.
  HostFor(HostCommon& common, const HostTables<A>& tables, std::uint32_t seed);
  HostFor(const HostFor&) = delete;
  HostFor& operator=(const HostFor&) = delete;

  /// Switches to other tables, over the same links.
  void update(const HostTables<A>& tables);
  /// Announces the host's own addresses on their links, and each virtual address on the links whose
  /// network it is in. Asks there whether another station has the virtual address.
  void announce(Wire& wire);
  /// Adds the configured neighbours, and begins to resolve the MACs of the next hops that the
  /// configuration needs.
  void keep(Tick now, Wire& wire);
  void tick(Tick now, Wire& wire);
  After route(Handling& handling);
  /// Does what `Host::tell` does, for this family.
  void tell(const Reset<Key<A>>& reset, Tick now, Wire& wire);
  /// Does what `Host::send` does with a datagram, for this family.
  bool send(const Key<A>& ends, std::span<const std::byte> payload, Tick now, Wire& wire);
  /// Processes a notice that came in the neighbourhood. `answers`: this worker, and no other,
  /// answers the notice if it is a question.
  void hear(const Notice<A>& notice, const Neighbourhood& on, bool answers, Tick now, Wire& wire);
  /// True if a kernel interface on the link should get the notice, too. False only for questions
  /// about virtual addresses, which the host answers.
  bool concerns_kernel(const Notice<A>& notice) const {
    return !notice.is_question || !is_virtual(notice.target);
  }
  /// Does what `Host::looked_up` does, for this family.
  std::uint64_t keep_for_host(Burst& burst, const Steering& steering) const;
  /// True for a packet that no service takes, to the host itself or to a virtual address.
  bool is_for_host(const Key<A>& key, const Steering& steering) const {
    return (tables_->local.contains(key.destination) || is_own_for_customer(key)) &&
           !belongs_to_service(key, steering);
  }
  /// Returns the packets in lanes to an own address that is not virtual, bits by place in the
  /// burst.
  std::uint64_t to_own(const Burst& burst) const;
  /// Returns a bit for each ICMP error that is addressed to the host itself and quotes a packet of
  /// the host or its kernel, not of a service.
  std::uint64_t errors_for_kernel(Burst& burst, const Steering& steering) const;
  /// True if the line has rewritten the packet, or a function has chosen its next hop.
  static bool is_rewritten(Burst& burst, unsigned packet);
  /// Do what the functions of the same name in `Host` do, for this family.
  void append_known(std::vector<KnownNeighbour>& all) const;
  void append_silent(std::vector<SilentNeighbour>& all) const;
  void append_rivals(std::vector<Rival>& all) const;
  WayTo way_to(const A& destination, Zone customer) const;
  void know(const Neighbourhood& on, const A& address, const Mac& mac, Tick now, Wire& wire);

 private:
  static constexpr unsigned kLocal = HostTables<A>::kLocal;
  static constexpr unsigned kGroup = HostTables<A>::kGroup;

  class Listening;
  using Way = typename Neighbours<A>::Way;
  /// The packet that an ICMP error is about.
  struct About {
    const std::byte* packet;
    Headers headers;
    std::uint16_t length;
    unsigned came_on;
    Zone customer = 0;  ///< the sender; 0: none
    unsigned mtu = 0;
  };

  /// The way of packets to a customer.
  struct ToCustomer {
    Customers::Access access;
    const Routes<A>* routes = nullptr;  ///< his VLAN's, or those to his tunnel's far end
    Zone in_vlan = 0;                   ///< his number if he has a VLAN; else 0
  };
  std::optional<ToCustomer> to_customer(Zone customer) const;
  Way find_way(const Outgoing& frame, const Route<A>& route, const A& destination, Zone in_vlan,
               Tick now, Wire& wire);
  static std::optional<A> next_hop(const Handling& handling);
  void limit_mss(const Handling& handling, unsigned link) const;
  bool divide(const Handling& handling, unsigned mtu);
  void send_parts(const Handling& handling, const Way& way, Zone in_vlan);
  After answer(Handling& handling);
  bool is_for_kernel(const Handling& handling, const A& destination) const;
  After give_to_kernel(Handling& handling);
  After turn_away(Handling& handling);
  After send_back(Handling& handling, const A& to);
  bool send_to(Outgoing frame, A destination, unsigned came_on, Tick now, Wire& wire,
               Zone customer = 0);
  void note_rival(const Notice<A>& notice, const Neighbourhood& on);
  After refuse(Handling& handling, Verdict why, IcmpError error, unsigned mtu = 0);
  /// Sends an ICMP error, unless the configuration, the rate limit or the packet forbids it.
  /// `sent`: the packet's keys before and after the line rewrote it, by which the error quotes the
  /// packet as its sender sent it; none: the packet is quoted as it is.
  void tell(IcmpError error, const About& about, const std::optional<RewrittenKey<A>>& sent,
            Tick now, Wire& wire);
  bool is_own(const A& address) const;
  bool is_own_for_customer(const Key<A>& key) const;
  bool belongs_to_service(const Key<A>& key, const Steering& steering) const;
  bool is_virtual(const A& address) const;
  bool is_answered_on(const A& address, unsigned link) const;
  bool is_neighbour_on(const A& address, const Neighbourhood& on) const;
  A asker(unsigned link, const A& target) const;
  std::optional<A> own_address(unsigned link) const;

  HostCommon& common_;
  const HostTables<A>* tables_;
  Neighbours<A> neighbours_;
  std::vector<KnownNeighbour> rivals_;
  AnsweredPings<A> answered_pings_;
  std::vector<Outgoing> parts_;  // fragments of the packet being routed, without the first
};

}  // namespace millrace
