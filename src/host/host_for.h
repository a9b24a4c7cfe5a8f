// What a host does for one address family.
//
// `HostFor` decides about packets and hears what neighbours say; what both families have in common,
// their links, the frames that wait, the counters, is in `HostCommon`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/burst.h"
#include "core/counter.h"
#include "core/destination_table.h"
#include "core/mac.h"
#include "core/reset.h"
#include "core/steering.h"
#include "host/datagrams.h"
#include "host/icmp.h"
#include "host/known_addresses.h"
#include "host/neighbours.h"
#include "host/notice.h"
#include "host/routes.h"
#include "host/wire.h"
#include "millrace/types.h"

namespace millrace {

/// What a host is told of one address family.
template <class A>
struct HostAddresses {
  struct Own {
    A address;
    unsigned bits = 8 * A::kBytes;  ///< of the network that is on the link
    unsigned link = 0;
  };
  std::vector<Own> own;
  /// Answered for on every link.
  std::vector<A> virtual_addresses;
  /// Packets to virtual addresses may be routed on (`Verdict::passed`).
  bool passes = false;
  std::vector<Route<A>> routes;  ///< beside the networks on the links
  /// Where packets will surely go: their next hops are asked for at once, and kept.
  std::vector<A> destinations;
  /// Prefixes, beside the virtual addresses, whose packets services may take.
  struct Prefix {
    A address;
    unsigned bits;
  };
  std::vector<Prefix> served;
  /// From where services' replies come: address, port and protocol of a backend.
  std::vector<Destination<A>> backends;
  struct Permanent {
    A address;
    unsigned link = 0;
    Mac mac;
  };
  /// Neighbours that nobody asks for, and whose MACs nothing changes.
  std::vector<Permanent> neighbours;
};

/// The check of a packet's source (RFC 3704).
enum class ReversePath : std::uint8_t {
  off,     ///< none
  loose,   ///< some route leads to it
  strict,  ///< the route to it leads to the link on which the packet came
};

struct HostLink {
  Mac mac;
  unsigned mtu = 1500;
  /// Stations answer there. Else every packet goes to nobody in particular.
  bool has_neighbours = true;
  ReversePath reverse_path = ReversePath::off;
  /// The kernel has an interface there: what is for the host's own addresses, or for all on the
  /// link, is the kernel's.
  bool has_kernel = false;
};

/// Of one address family, what hosts over the same links may have in common. Never changes.
template <class A>
struct HostTables {
  static constexpr unsigned kLocal = 0xffff;  ///< the link of routes to the host itself
  static constexpr unsigned kGroup = 0xfffe;  ///< that of routes to everybody on a link

  HostTables(const HostAddresses<A>& given, const std::vector<HostLink>& links);

  HostAddresses<A> addresses;   ///< link-local ones, too
  Routes<A> routes;             ///< to the host itself and the networks on the links, too
  Routes<A> beyond;             ///< without virtual addresses; empty where nothing passes
  Routes<A> served;             ///< destinations whose packets services may take
  KnownAddresses<A> local;      ///< own and virtual addresses
  DestinationTable<A> replies;  ///< sources from which services' replies come
};

/// Returns the host's own addresses and the virtual ones.
template <class A>
std::vector<A> local_addresses(const HostAddresses<A>& addresses);

/// Returns the broadcast addresses of the networks on the links (RFC 919, 7); IPv6 has none.
template <class A>
std::vector<A> broadcasts_of(const HostAddresses<A>& addresses);

/// True if no router stands between a link and that address.
template <class A>
bool is_on_link(const HostAddresses<A>& addresses, const A& address);

/// True if some route, or a network on a link, has it.
template <class A>
bool has_route(const HostAddresses<A>& addresses, const A& address);

struct KnownNeighbour {
  unsigned link = 0;
  AnyAddress address;
  Mac mac;
};

/// A neighbour that does not answer.
struct SilentNeighbour {
  unsigned link = 0;
  AnyAddress address;
};

/// A station that answers for an address which is ours.
struct Rival {
  unsigned link = 0;
  AnyAddress address;
  Mac mac;
  std::optional<AnyAddress> neighbour;  ///< another address of it, if one is known
};

/// Where packets go.
struct WayTo {
  enum class Kind : std::uint8_t {
    nowhere,   ///< no route leads there
    here,      ///< it is the host's own, or a virtual address
    group,     ///< everybody on a link
    next_hop,  ///< a neighbour
  };
  Kind kind = Kind::nowhere;
  unsigned link = 0;       ///< of the neighbour
  AnyAddress next_hop;     ///< its address
  bool is_silent = false;  ///< it did not answer when it was asked last
};

/// Of packets that left, or did not, after their burst had been counted.
struct alignas(64) HostCounters {
  Counter generated;   ///< made here: ARP, neighbour discovery, ICMP, RSTs
  Counter released;    ///< held until their next hop was known, and sent
  Counter unresolved;  ///< held, and dropped
};

/// A frame that waits for a neighbour.
struct HeldFrame {
  Outgoing frame;
  Headers headers;  ///< of what stands at `frame.data`
  std::uint32_t neighbour;
  unsigned came_on;
  bool is_v4;
  bool is_as_it_came = false;  ///< nothing rewrote it
  bool is_own = false;         ///< made here
};

/// How often ICMP errors may be sent (RFC 1812, 4.3.2.8).
class Allowance {
 public:
  static constexpr unsigned kASecond = 1000;
  static constexpr unsigned kAtOnce = 100;

  /// Whether one may be sent now; it counts as sent.
  bool take(Tick now);

 private:
  unsigned left_ = kAtOnce;
  Tick filled_;
};

struct HostCommon {
  std::vector<HostLink> links;
  bool tells_unreachable = true;
  Allowance allowance;
  std::vector<HeldFrame> held;
  HostCounters counters;

  /// Frames that wait, at most, and for one neighbour: fewer lost packets of clients that a process
  /// met first after it began.
  static constexpr std::size_t kMaxHeld = 512;
  static constexpr std::size_t kMaxHeldEach = 128;
  /// False: there is no room.
  bool hold(const HeldFrame& frame);
  /// Those that wait for that neighbour.
  std::vector<HeldFrame> take_held(std::uint32_t neighbour, bool is_v4);
  void send_own(const Outgoing& frame, Wire& wire);
};

/// A packet's key as it came, and as the line has made it.
template <class A>
struct RewrittenKey {
  Key<A> was;
  Key<A> is;
};

/// A packet of a burst that is routed.
struct Handling {
  Burst& burst;
  unsigned i;
  bool forward;  ///< the line lets it go
  Outgoing& out;
  Wire& wire;

  std::byte* packet() const { return burst.data[i]; }
  const Headers& headers() const { return burst.headers[i]; }
  Verdict& verdict() const { return burst.verdict[i]; }
  unsigned came_on() const { return wire.link_of(burst.handle[i]); }
  Tick now() const { return burst.now; }
};
enum class After : std::uint8_t {
  stays,  ///< with its port: it goes no further
  sent,   ///< goes out as `out` says
  taken,  ///< its memory is the host's, or the wire's
};

template <class A>
class HostFor {
 public:
  /// `tables` outlive it, or the next update.
  HostFor(HostCommon& common, const HostTables<A>& tables, std::uint32_t seed);
  HostFor(const HostFor&) = delete;
  HostFor& operator=(const HostFor&) = delete;

  /// From now on. The links are the same.
  void update(const HostTables<A>& tables);
  /// Tells all links of its addresses, and asks whether another station has a virtual one, too.
  void announce(Wire& wire);
  /// Asks for next hops that will be needed.
  void keep(Tick now, Wire& wire);
  void tick(Tick now, Wire& wire);
  After route(Handling& handling);
  /// Sends the RST.
  void tell(const Reset<Key<A>>& reset, Tick now, Wire& wire);
  /// `answers`: else another worker does.
  void hear(const Notice<A>& notice, unsigned link, bool answers, Tick now, Wire& wire);
  /// Returns whether the kernel, where it has an interface on the link, hears it, too: all but
  /// questions about virtual addresses, which the host answers.
  bool concerns_kernel(const Notice<A>& notice) const {
    return !notice.is_question || !is_virtual(notice.target);
  }
  /// As `Host::looked_up`.
  std::uint64_t keep_for_host(Burst& burst, const Steering& steering) const;
  /// Returns true for a packet to the host itself, or to a virtual address, that no service takes.
  bool is_for_host(const Key<A>& key, const Steering& steering) const {
    return tables_->local.contains(key.destination) && !belongs_to_service(key, steering);
  }
  /// Returns the errors, a bit each, that are addressed to the host itself and about its own
  /// packets.
  std::uint64_t errors_for_kernel(Burst& burst, const Steering& steering) const;
  /// Bursts with which `filed` may be called before the first of them comes to `settle`; after
  /// more, a fragment has been taken out of its burst.
  static constexpr unsigned kInFlight = 5;
  /// Fragments whose keys nobody may look up, a bit each.
  struct Apart {
    std::uint64_t refused = 0;    ///< they belong to a service
    std::uint64_t untracked = 0;  ///< they do not
  };
  /// Does what `Host::filed` does, for these fragments of the family.
  Apart filed(Burst& burst, const Steering& steering, std::uint64_t fragments, bool keeps_all);
  /// True while first fragments that may be replies are on their way through the line.
  bool has_pending() const { return !pending_.empty(); }
  /// Refuses the burst's packet if it is such a fragment, and a service has taken it after all.
  void settle(Burst& burst, unsigned i);
  /// As `Host`'s, of this family.
  void append_known(std::vector<KnownNeighbour>& all) const;
  void append_silent(std::vector<SilentNeighbour>& all) const;
  void append_rivals(std::vector<Rival>& all) const;
  WayTo way_to(const A& destination) const;
  void know(unsigned link, const A& address, const Mac& mac, Tick now, Wire& wire);

 private:
  static constexpr unsigned kLocal = HostTables<A>::kLocal;
  static constexpr unsigned kGroup = HostTables<A>::kGroup;

  class Listening;
  using Way = typename Neighbours<A>::Way;
  /// What an error is about.
  struct About {
    const std::byte* packet;
    Headers headers;
    std::uint16_t length;
    unsigned came_on;
    unsigned mtu = 0;
  };

  Way find_way(const Outgoing& frame, const Route<A>& route, const A& destination, Tick now,
               Wire& wire);
  static std::optional<A> next_hop(const Handling& handling);
  After route_whole(Handling& handling);
  After route_fragment(Handling& handling);
  After answer(Handling& handling);
  bool is_for_kernel(const Handling& handling, const A& destination) const;
  After give_to_kernel(Handling& handling);
  After turn_away(Handling& handling);
  After send_back(Handling& handling, const A& to);
  bool send_to(Outgoing frame, const A& destination, unsigned came_on, Tick now, Wire& wire);
  void note_rival(const Notice<A>& notice, unsigned link);
  After refuse(Handling& handling, Verdict why, IcmpError error, unsigned mtu = 0);
  /// `sent`: what was rewritten of it, to be quoted as it was sent.
  void tell(IcmpError error, const About& about, const std::optional<RewrittenKey<A>>& sent,
            Tick now, Wire& wire);
  bool is_own(const A& address) const;
  static bool is_rewritten(Burst& burst, unsigned packet);
  bool belongs_to_service(const Key<A>& key, const Steering& steering) const;
  bool is_virtual(const A& address) const;
  bool is_answered_on(const A& address, unsigned link) const;
  bool is_neighbour_on(const A& address, unsigned link) const;
  A asker(unsigned link, const A& target) const;
  std::optional<A> own_address(unsigned link) const;

  HostCommon& common_;
  const HostTables<A>* tables_;
  Neighbours<A> neighbours_;
  std::vector<KnownNeighbour> rivals_;
  Treatments<A> treatments_;
  /// A first fragment that may be a reply.
  struct Pending {
    Handle handle;
    Datagram<A> datagram;
    unsigned burst;
  };
  std::deque<Pending> pending_;  // in the order in which they come to `settle`
  unsigned bursts_ = 0;          // with fragments, or while some were pending
};

}  // namespace millrace
