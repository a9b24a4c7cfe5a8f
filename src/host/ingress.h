// What a router takes in of the packets that come to it, decided before their keys are looked up:
// frames for this station and no VLAN, from a source that may have sent them, to a destination that
// may be forwarded to.
//
// Made with a plan of the host, and never changed; any worker may ask it. A capture may have been
// taken anywhere, so nothing here concerns `replay`.
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

/// Packets of a burst, from `begin` to before `end`, that came on one link.
struct Arrival {
  unsigned begin = 0;
  unsigned end = 0;
  unsigned link = 0;
};

/// By its first byte, an address that may not be one host's, or is on every link.
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

/// What it decides by the addresses of one family.
template <class A>
class IngressFor {
 public:
  explicit IngressFor(const HostTables<A>& tables);

  /// @name 0 for nearly all addresses of packets that are taken in, and for no other
  /// @{
  static std::uint8_t odd_class(const A& address) { return kOdd<A>[address.bytes[0]]; }
  std::uint8_t odd_source(const A& source) const { return sources_.may_contain(source); }
  /// @}

  struct Ruling {
    Verdict verdict;
    bool unfile;  ///< its key is to be looked up by nobody
  };
  /// What becomes of a parsed packet with the verdict `was`. `to_all`: its frame went to several
  /// stations.
  Ruling judge(const A& source, const A& destination, const Headers& headers, Verdict was,
               bool to_all, ReversePath reverse_path, unsigned link) const;

 private:
  bool may_send(const A& source, bool to_group) const;

  const HostTables<A>* tables_;
  KnownAddresses<A> sources_;  ///< that are millrace's own, or a network's broadcast address
  KnownAddresses<A> virtual_;
};

class Ingress {
 public:
  /// The tables outlive it.
  Ingress(std::span<const HostLink> links, const HostTables<AddressV4>& v4,
          const HostTables<AddressV6>& v6);

  struct Found {
    std::uint64_t unfiled = 0;    ///< packets, a bit each, whose key nobody may look up
    std::uint64_t fragments = 0;  ///< of those that are taken in
  };
  /// Looks at packets of a parsed burst. Gives those that are not taken in their verdict.
  Found look(Burst& burst, const Arrival& arrival) const;

 private:
  struct Link {
    explicit Link(const HostLink& link);

    std::uint64_t mac = 0;        ///< in the first 6 bytes
    std::uint64_t mac_bytes = 0;  ///< the bits of it that a frame must have
    HostLink is;
  };

  template <class A>
  bool are_plain(const Burst& burst, const Arrival& arrival, const Link& link,
                 const IngressFor<A>& family) const;
  bool is_plain(const Burst& burst, unsigned i, const Link& link) const;
  void judge(Burst& burst, unsigned i, const Link& link, unsigned number, Found& found) const;

  std::vector<Link> links_;
  /// A service may take packets to any destination: else their routes are early enough.
  bool looks_at_destinations_;
  IngressFor<AddressV4> v4_;
  IngressFor<AddressV6> v6_;
};

}  // namespace millrace
