// Decides which packets a router takes in, before their keys are looked up: packets in frames to
// this station or, for groups, to all stations, of the link's VLAN, from a source that may send, to
// the host, a group or a destination to which routers forward.
//
// An `Ingress` is part of a host's plan and never changes; any worker may call it. `millrace
// replay` has no `Ingress`: a capture may have been taken anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/burst.h"
#include "host/host_for.h"
#include "host/known_addresses.h"

namespace millrace {

/// Packets of a burst, from `begin` up to before `end`, that arrived on one link.
struct Arrival {
  unsigned begin = 0;
  unsigned end = 0;
  unsigned link = 0;
  bool is_foreign = false;  ///< the packets are of no link: their frames are of another VLAN
};

/// Table indexed by an address's first byte: 1 if addresses with that byte include some that are
/// not one host's, or link-local ones.
template <class A>
inline constexpr auto kOdd = [] {
  std::array<std::uint8_t, 256> odd{};
  if constexpr (A::kBytes == 4) {
    odd[0] = odd[127] = odd[255] = 1;
    for (unsigned group = 224; group < 240; ++group) odd[group] = 1;
  } else {
    odd[0] = odd[0xfe] = odd[0xff] = 1;
  }
  return odd;
}();

/// The part of `Ingress` that decides by the addresses of one family.
template <class A>
class IngressFor {
 public:
  explicit IngressFor(const HostTables<A>& tables);

  /// @name Quick checks of an address, without a branch
  /// If one of them does not return 0, `judge` must look at the packet. 0 says only that this
  /// address gives no reason for that.
  /// @{
  static std::uint8_t odd_class(const A& address) { return kOdd<A>[address.bytes[0]]; }
  std::uint8_t odd_source(const A& source) const { return some_sources_.may_contain(source); }
  /// @}

  struct Ruling {
    Verdict verdict;
    bool unfile;  ///< the packet's key must not be looked up
  };
  /// Returns the verdict on a parsed packet that had the verdict `was` and arrived on `link`.
  /// `to_all`: the frame's destination MAC is multicast or broadcast. `advertises`: the packet is a
  /// neighbour advertisement.
  Ruling judge(const A& source, const A& destination, const Headers& headers, Verdict was,
               bool to_all, bool advertises, ReversePath reverse_path, unsigned link) const;

 private:
  bool may_send(const A& source, bool to_group, unsigned link) const;

  const HostTables<A>* tables_;
  KnownAddresses<A> sources_;  ///< own, virtual and directed broadcast addresses
  /// These, and those of links with customers in VLANs, which hold there only.
  KnownAddresses<A> some_sources_;
  KnownAddresses<A> virtual_;
};

class Ingress {
 public:
  /// The tables must outlive the object.
  Ingress(std::span<const HostLink> links, const HostTables<AddressV4>& v4,
          const HostTables<AddressV6>& v6);

  /// Checks packets of a parsed burst. A packet that is not taken in gets a verdict that says why,
  /// and a tracked packet to a group gets `no_service`. Returns a bit for each packet whose key
  /// must not be looked up; all keys stay in their lanes.
  std::uint64_t inspect(Burst& burst, const Arrival& arrival) const;

 private:
  struct Link {
    explicit Link(const HostLink& link);

    std::uint64_t mac = 0;        ///< the link's MAC, in the first 6 bytes
    std::uint64_t mac_bytes = 0;  ///< the bits of `mac` that a frame's destination must match
    HostLink is;
  };

  template <class A>
  bool are_plain(const Burst& burst, const Arrival& arrival, const Link& link,
                 const IngressFor<A>& family) const;
  bool is_plain(const Burst& burst, unsigned i, const Link& link) const;
  void judge(Burst& burst, unsigned i, const Link& link, unsigned number,
             std::uint64_t& unfiled) const;

  std::vector<Link> links_;
  /// True if services take packets by a prefix. Otherwise odd destinations are found when packets
  /// are routed.
  bool looks_at_destinations_;
  IngressFor<AddressV4> v4_;
  IngressFor<AddressV6> v6_;
};

}  // namespace millrace
