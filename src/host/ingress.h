// What a router takes in of the packets that come to it, decided before their keys are looked up:
// frames for this station and no VLAN, from a source that may have sent them, to a destination that
// may be forwarded to.
//
// Made with a plan of the host, and never changed; any worker may ask it. A capture may have been
// taken anywhere, so nothing here concerns `replay`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/burst.h"
#include "host/addresses_known.h"
#include "host/host_for.h"

namespace millrace {

/// Packets of a burst, from `begin` to before `end`, that came on one link.
struct Arrival {
  unsigned begin = 0;
  unsigned end = 0;
  unsigned link = 0;
};

/// What it decides by the addresses of one family.
template <class A>
class IngressFor {
 public:
  explicit IngressFor(const HostTables<A>& tables);

  /// False for nearly all packets that are taken in, and for no other.
  bool is_odd(const A& source, const A& destination) const {
    return is_odd(source) || is_odd(destination) || sources_.may_contain(source);
  }

  struct Ruling {
    Verdict verdict;
    bool unfile;  ///< its key is to be looked up by nobody
  };
  /// What becomes of a parsed packet with the verdict `was`. `to_all`: its frame went to several
  /// stations.
  Ruling judge(const A& source, const A& destination, const Headers& headers, Verdict was,
               bool to_all, ReversePath reverse_path, unsigned link) const;

 private:
  static bool is_odd(const AddressV4& address) {
    const unsigned first = address.bytes[0];
    return ((first + 1) & 0x7e) == 0 || (first & 0xf0) == 0xe0;  // 0, 127, 128, 255; 224 to 239
  }
  static bool is_odd(const AddressV6& address) {
    return ((address.bytes[0] + 2U) & 0xff) < 3;  // fe, ff, 00
  }
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

    std::uint64_t mac = 0;  ///< in the first 6 bytes
    HostLink is;
  };

  bool is_plain(const Burst& burst, unsigned i, const Link& link) const;
  void judge(Burst& burst, unsigned i, const Link& link, unsigned number, Found& found) const;

  std::vector<Link> links_;
  IngressFor<AddressV4> v4_;
  IngressFor<AddressV6> v6_;
};

}  // namespace millrace
