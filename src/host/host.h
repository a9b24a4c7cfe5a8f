// A worker's host: what makes a line a router with addresses of its own. It decides where each
// served packet goes, finds neighbours, answers for its addresses, and says why a packet went no
// further.
//
// It has no clock and no socket; a port calls it once a burst, and gives it a wire to send by. One
// worker owns it. Each of several workers has its own, and hears what is said to any of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  bool tells_unreachable = true;  ///< by ICMP
  bool announces = true;          ///< its addresses, when it begins: one worker does
  std::uint32_t seed = 1;         ///< of how neighbours' times vary
};

/// What of a configuration hosts of several workers may have in common, with tables that take time
/// to build: made once, by any thread, and never changed.
struct HostPlan {
  explicit HostPlan(const HostConfig& config)
      : v4(config.v4, config.links),
        v6(config.v6, config.links),
        ingress(config.links, v4, v6),
        tells_unreachable(config.tells_unreachable) {}
  HostPlan(const HostPlan&) = delete;
  HostPlan& operator=(const HostPlan&) = delete;

  HostTables<AddressV4> v4;
  HostTables<AddressV6> v6;
  Ingress ingress;
  bool tells_unreachable;
};

class Host {
 public:
  explicit Host(const HostConfig& config);

  /// Before the first burst: announces its addresses, and asks for next hops.
  void begin(Tick now, Wire& wire);

  /// Has other addresses, routes and destinations from now on; links, and who announces, stay.
  /// Gives back what it had in `plan`, so that somebody else takes the time to destroy it.
  void update(std::shared_ptr<const HostPlan>& plan, Tick now, Wire& wire);

  /// Gives the packets of a parsed burst that a router does not take in their verdicts, and takes
  /// their keys out of all lanes. `arrivals` says which packets came on which link; packets that
  /// are in none of them pass.
  void admit(Burst& burst, std::span<const Arrival> arrivals);
  /// Refuses the fragments of that burst that a service would take, since their other parts have no
  /// ports. To be called after `admit`. `keeps_all`: no packet of the burst goes to another worker.
  void filed(Burst& burst, const Steering& steering, bool keeps_all);
  /// Connections have been looked up: what is addressed to the host itself and has none, no
  /// function is asked about. Returns these packets, a bit each.
  std::uint64_t looked_up(Burst& burst, const Steering& steering) const;

  struct Routed {
    std::uint64_t sent = 0;   ///< packets, a bit each, that go out as `out` says
    std::uint64_t taken = 0;  ///< those whose memory is the host's, or the wire's, now
  };
  /// Says where those packets of a burst go whose bit in `forward` is set. Reads what the line
  /// wrote; writes verdicts, Ethernet headers and hop limits, and `out` for each packet. What is
  /// addressed to the host is answered whether or not its bit is set, unless its verdict drops it.
  Routed route(Burst& burst, std::uint64_t forward, std::span<Outgoing> out, Wire& wire);

  /// Sends a frame of the kernel's: it counts as made here.
  void send(const Outgoing& frame, Wire& wire) { common_.send_own(frame, wire); }

  /// Sends the RST.
  void tell(const Reset<KeyV4>& reset, Tick now, Wire& wire) { v4_.tell(reset, now, wire); }
  void tell(const Reset<KeyV6>& reset, Tick now, Wire& wire) { v6_.tell(reset, now, wire); }

  /// Whether a packet says something that the hosts of all workers should hear.
  static bool concerns_all(std::span<const std::byte> frame, const Headers& headers);
  /// What another worker was told on that link: a whole frame.
  void hear(std::span<const std::byte> frame, unsigned link, Tick now, Wire& wire);

  /// To be called once a burst.
  void tick(Tick now, Wire& wire);
  /// After the last burst: what still waits is dropped.
  void end(Wire& wire);

  /// Next hops that packets will go to, and that do not answer.
  std::vector<SilentNeighbour> silent() const;
  /// Returns where packets for that destination go.
  WayTo way_to(const AnyAddress& destination) const;
  /// Returns true if a packet with this key, which has no connection, is one that `looked_up`
  /// keeps.
  bool keeps(const AnyKey& key, const Steering& steering) const;
  /// Stations that answer for a virtual address, or a port's own one that the host answers for
  /// (RFC 5227, 2.4), as far as they have been heard since the last update: 4 of an address and 64
  /// of a family at most. Only virtual addresses in the network of a port are asked for.
  std::vector<Rival> rivals() const;

  /// Neighbours that have answered; and such as another host has heard, which are asked again when
  /// packets go there.
  std::vector<KnownNeighbour> known() const;
  void know(const KnownNeighbour& neighbour, Tick now, Wire& wire);

  const HostCounters& counters() const { return common_.counters; }
  std::size_t held() const { return common_.held.size(); }

 private:
  After hear_arp(Handling& handling);
  bool has_pending() const { return v4_.has_pending() || v6_.has_pending(); }

  HostCommon common_;
  std::shared_ptr<const HostPlan> plan_;
  HostFor<AddressV4> v4_;
  HostFor<AddressV6> v6_;
  bool announces_;
  bool has_kernel_;              // on some link
  std::uint64_t fragments_ = 0;  // of the latest burst that was taken in
};

}  // namespace millrace
