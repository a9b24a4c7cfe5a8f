// Zones: names in rules for parts of the network. A zone has ports, prefixes or both. An address
// is in the zone with the longest of the prefixes around it; a zone with ports, too, only takes
// packets of these ports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/of_family.h"
#include "core/prefix_table.h"
#include "function/firewall/matching.h"
#include "host/host_for.h"

namespace millrace {

/// A zone of the configuration.
struct ZoneSpec {
  std::string name;
  std::vector<unsigned> links;  ///< numbers of its ports; empty: all
  std::vector<Prefix<AddressV4>> v4;
  std::vector<Prefix<AddressV6>> v6;
  bool has_prefixes = false;  ///< false: all addresses at its ports

  template <class A>
  const std::vector<Prefix<A>>& prefixes() const {
    return of_family<A>(v4, v6);
  }
  bool has_link(unsigned link) const {
    return links.empty() || std::ranges::find(links, link) != links.end();
  }
};

/// Stands for the link of a packet that comes again (`Burst::came_again`).
inline constexpr std::uint8_t kAgainLink = kHostLink - 1;

/// Finds the zones of addresses of one family. Any thread may use an object.
template <class A>
class ZonesFor {
 public:
  /// `specs[i]` is the zone `kHostZone` + 1 + i. `host` has the host's own addresses and the
  /// routes, with links below `links`.
  ZonesFor(const std::vector<ZoneSpec>& specs, const HostAddresses<A>& host, unsigned links);

  /// Returns the zone of a packet with that source that came on `link`. If no link is known
  /// (`kNoLink`), packets to that address show the link. `kHostLink`: the host itself sent it.
  /// `kAgainLink`: it comes from outside, from an address at which a function receives packets.
  std::uint8_t from(const A& source, unsigned link) const;
  /// Returns the zone of packets that come or leave by tunnels of a port, whatever their addresses.
  std::uint8_t at(unsigned link) const {
    return link < links_ ? from_[from_.size() - links_ + link] : kNoZone;
  }
  /// Returns the zone in which packets to that address leave.
  std::uint8_t to(const A& destination) const {
    const std::uint32_t i = destinations_.find(destination);
    return i == destinations_.kNone ? beyond_ : to_[i];
  }
  /// Returns the zone around an address: does what `to` does, but for an address of the host itself
  /// returns the zone of other addresses around it.
  std::uint8_t around(const A& address) const {
    const std::uint32_t i = destinations_.find(address);
    return i == destinations_.kNone ? beyond_ : around_[i];
  }
  /// Returns the zone in which a customer's packets to that address leave, if nothing translates
  /// them; he is on `link`, where the host may have addresses for customers.
  std::uint8_t to(const A& destination, unsigned link) const {
    const auto is_it = [&](const auto& own) {
      return own.link == link && own.address == destination;
    };
    return std::ranges::any_of(own_of_customers_, is_it) ? kHostZone : to(destination);
  }

 private:
  unsigned links_;
  PrefixTable<A> sources_;
  std::vector<std::uint8_t> from_;  // by prefix and link; behind the last, for no prefix
  PrefixTable<A> destinations_;
  std::vector<std::uint8_t> to_;  // by prefix
  std::vector<std::uint8_t> around_;
  std::uint8_t beyond_ = kNoZone;  // the zone of addresses without a route
  std::vector<typename HostAddresses<A>::Own> own_of_customers_;
};

struct Zones {
  ZonesFor<AddressV4> v4;
  ZonesFor<AddressV6> v6;

  template <class A>
  const ZonesFor<A>& family() const {
    return of_family<A>(v4, v6);
  }
};

}  // namespace millrace
