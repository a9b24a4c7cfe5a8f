// A worker's host, which makes a line a router with addresses of its own. The host decides where
// each packet goes, resolves neighbours, answers for its addresses, and sends ICMP errors and RSTs
// about packets that go no further.
//
// A host has no clock and no socket: a port calls it once a burst and passes a `Wire` to send by.
// One worker owns a host. With several workers each worker has its own host, and an ARP reply or
// neighbour advertisement that one host receives is passed to all hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "core/burst.h"
#include "host/host_for.h"
#include "host/ingress.h"
#include "host/wire.h"
#include "millrace/types.h"

namespace millrace {

struct HostConfig {
  std::vector<HostLink> links;
  HostAddresses<AddressV4> v4;
  HostAddresses<AddressV6> v6;
  std::shared_ptr<const Customers> customers;  ///< null: none
  bool tells_unreachable = true;               ///< sends ICMP unreachable errors
  /// True: `begin` and `update` announce the host's addresses. True for one worker only.
  bool announces = true;
  /// True: the host answers for virtual addresses, and announces them (`Host::set_active`).
  bool is_active = true;
  std::uint32_t seed = 1;  ///< seeds the variation of neighbours' reachable times
};

/// Returns where tunnels end: at the first IPv4 address of each port that has some.
std::vector<Tunnels::End> ends_of_tunnels(const HostConfig& config);

/// The part of a configuration that all workers' hosts share, with tables that take time to build.
/// Any thread makes a plan; a plan never changes.
struct HostPlan {
  explicit HostPlan(const HostConfig& config)
      : v4(config.v4, config.links),
        v6(config.v6, config.links),
        ingress(config.links, v4, v6),
        tunnels(config.customers, ends_of_tunnels(config)),
        tells_unreachable(config.tells_unreachable) {
    for (const HostLink& link : config.links) {
      mss.push_back(link.mss);
      tunnel_overhead.push_back(link.tunnel_overhead);
    }
  }
  HostPlan(const HostPlan&) = delete;
  HostPlan& operator=(const HostPlan&) = delete;

  HostTables<AddressV4> v4;
  HostTables<AddressV6> v6;
  Ingress ingress;
  Tunnels tunnels;
  bool tells_unreachable;
  std::vector<std::uint16_t> mss;         ///< indexed by link
  std::vector<unsigned> tunnel_overhead;  ///< indexed by link
};

class Host {
 public:
  explicit Host(const HostConfig& config);

  /// Announces the host's addresses if `announces` is true, and begins to resolve the MACs of the
  /// next hops that the configuration needs. To be called before the first burst.
  void begin(Tick now, Wire& wire);

  /// Switches to other addresses, routes and destinations; the links and `announces` stay. Swaps
  /// the old plan into `plan`, so that the caller can destroy it in another thread.
  void update(std::shared_ptr<const HostPlan>& plan, Tick now, Wire& wire);

  /// Unwraps the packets of customers. To be called before the burst is parsed.
  void unwrap(Burst& burst, std::span<const Arrival> arrivals) const {
    if (!plan_->tunnels.are_there()) [[likely]]
      return;
    for (const Arrival& arrival : arrivals) plan_->tunnels.unwrap(burst, arrival);
  }
  /// Checks a parsed burst. A packet that a router does not take in gets a verdict that says why.
  /// The keys of such packets are removed from all lanes, and so are the keys of packets to groups
  /// and of other packets that are for the host alone. `arrivals` says which packets came on which
  /// link; a packet in none of the `arrivals` is not checked.
  void admit(Burst& burst, std::span<const Arrival> arrivals);
  /// Removes from the lanes the keys of ICMP errors for the kernel. To be called after `admit` for
  /// the same burst.
  void filed(Burst& burst, const Steering& steering);
  /// Returns the packets in lanes that are the host's own: its kernel sends them, or they are for
  /// an address of its own that is not virtual. Bits by place in the burst.
  std::uint64_t own(const Burst& burst) const {
    return burst.of_host | v4_.to_own(burst) | v6_.to_own(burst);
  }
  /// Withholds from functions the packets without a connection that are for the host itself, or for
  /// a virtual address where no service takes them. To be called after the lookups. Returns a bit
  /// for each such packet.
  std::uint64_t looked_up(Burst& burst, const Steering& steering) const;

  struct Routed {
    std::uint64_t sent = 0;   ///< a bit for each packet that goes out as `out` says
    std::uint64_t taken = 0;  ///< a bit for each packet that the host or the wire now owns
  };
  /// Decides where the packets with their bit in `forward` set go. Reads what the line wrote;
  /// writes verdicts, Ethernet headers and hop limits, and `out` for each packet that is sent.
  /// Packets to the host itself are answered whether or not their bit is set, unless their verdict
  /// drops them. Packets of the host's kernel (`Burst::of_host`) go out as they are, unless their
  /// verdict drops them or the line has rewritten them. The sender of a packet whose verdict is
  /// answered (`is_answered`) gets a RST or an ICMP error.
  Routed route(Burst& burst, std::uint64_t forward, std::span<Outgoing> out, Wire& wire);

  /// Sends a frame of the kernel; it counts as generated.
  void send(const Outgoing& frame, Wire& wire) { common_.send_own(frame, wire); }

  /// Sends the RST, once its next hop is known. Drops it if memory or a route is missing, or if the
  /// next hop does not answer.
  void tell(const Reset<KeyV4>& reset, Tick now, Wire& wire) { v4_.tell(reset, now, wire); }
  void tell(const Reset<KeyV6>& reset, Tick now, Wire& wire) { v6_.tell(reset, now, wire); }

  /// Sends a UDP datagram between the ends of a key, as `tell` sends a RST. False: it is dropped.
  bool send(const AnyKey& ends, std::span<const std::byte> payload, Tick now, Wire& wire) {
    if (const auto* v4 = std::get_if<KeyV4>(&ends)) return v4_.send(*v4, payload, now, wire);
    return v6_.send(std::get<KeyV6>(ends), payload, now, wire);
  }

  /// Answers for the virtual addresses from now on, and announces them; or leaves them to another
  /// host.
  void set_active(bool is_active, Tick now, Wire& wire) {
    common_.is_active = is_active;
    if (is_active) begin(now, wire);
  }

  /// True for an ARP reply or announcement and for a neighbour advertisement: the hosts of all
  /// workers should process them.
  static bool concerns_all(std::span<const std::byte> frame, const Headers& headers);
  /// Processes a whole frame that another worker received in the neighbourhood and for which
  /// `concerns_all` is true.
  void hear(std::span<const std::byte> frame, const Neighbourhood& on, Tick now, Wire& wire);

  /// Advances time. To be called once a burst.
  void tick(Tick now, Wire& wire);
  /// Drops the packets that still wait. To be called after the last burst.
  void end(Wire& wire);

  /// Returns the next hops that the configuration needs and that did not answer when last asked.
  std::vector<SilentNeighbour> silent() const;
  /// Returns the route that packets to that destination take; `customer`: those from him.
  WayTo way_to(const AnyAddress& destination, Zone customer = 0) const;
  /// True if `looked_up` withholds a packet with this key and no connection from functions.
  bool keeps(const AnyKey& key, const Steering& steering) const;
  /// Returns the stations that have answered, since the last update, for an address that this host
  /// answers for: a virtual address, or a port's own unless the kernel answers for it (RFC 5227,
  /// 2.4). At most 4 for an address and 64 for a family. The host itself asks only for virtual
  /// addresses in a port's network.
  std::vector<Rival> rivals() const;

  /// `known` returns the neighbours with a known MAC. `know` adds a neighbour that another host
  /// knows; this host asks that neighbour again once packets go there.
  std::vector<KnownNeighbour> known() const;
  void know(const KnownNeighbour& neighbour, Tick now, Wire& wire);

  const HostCounters& counters() const { return common_.counters; }
  std::size_t held() const { return common_.held.size(); }

 private:
  void adopt_settings();
  After hear_arp(Handling& handling);
  static bool is_rewritten(Burst& burst, unsigned packet);

  HostCommon common_;
  std::shared_ptr<const HostPlan> plan_;
  HostFor<AddressV4> v4_;
  HostFor<AddressV6> v6_;
  bool announces_;
  bool has_kernel_;  // some link has a kernel interface
};

}  // namespace millrace
