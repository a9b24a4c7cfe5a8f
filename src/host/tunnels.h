// Tunnels of customers, and their VLANs. Packets of a customer are unwrapped before they are
// parsed, so that the line sees plain packets with the customer's number, and wrapped again when
// they leave to him.
//
// A tunnel is GRE over IPv4 (RFC 2784, RFC 2890), with IPv4 inside. A packet with another outer
// header than the usual one is not unwrapped, and dropped with a reason: with options, in
// fragments, of no customer, with a wrong checksum. The tunnel copies the traffic class, and passes
// congestion on (RFC 2983, 4; RFC 6040, 4).
//
// A VLAN is the first tag of a frame (IEEE 802.1Q). All frames on a link with such customers are
// theirs, also those that are not of IP; frames of other VLANs are dropped, and so is IPv6, which
// nothing translates.
//
// A `Tunnels` is part of a host's plan and never changes; any worker may call it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/address_numbers.h"
#include "core/burst.h"
#include "core/customers.h"
#include "core/mac.h"
#include "core/outgoing.h"
#include "core/verdict.h"

namespace millrace {

struct Arrival;

class Tunnels {
 public:
  /// A port where tunnels end.
  struct End {
    unsigned link = 0;
    AddressV4 address;           ///< millrace's end of all tunnels there
    Mac mac;                     ///< the link's
    bool has_neighbours = true;  ///< false: frames may have any MAC
  };

  /// `ends`: of the customers behind tunnels. `customers` may be null: there are none.
  Tunnels(std::shared_ptr<const Customers> customers, std::span<const End> ends);

  /// True if a port has customers.
  bool are_there() const { return !by_link_.empty(); }

  /// Unwraps packets of a burst that is not parsed yet, and arrived on one link: these stand in
  /// `Burst::from_customer`, and their frames begin with an Ethernet header directly before the
  /// inner packet, which of those in VLANs may be of any protocol.
  void unwrap(Burst& burst, const Arrival& arrival) const;
  /// Gives the parsed keys of unwrapped packets their customer's number, and drops the packets of
  /// tunnels and in VLANs that were not unwrapped.
  void file(Burst& burst, std::span<const Arrival> arrivals) const;

  /// Bytes that a customer's tunnel adds to a packet; 0 if he has a VLAN.
  static unsigned overhead(const Customers::Access& access) {
    return access.vlan != 0 ? 0 : kIp + kGre + (access.key ? kKey : 0);
  }
  /// Returns how the customer is reached; none if there is no such customer.
  std::optional<Customers::Access> access_of(Zone customer) const {
    return customers_ == nullptr ? std::nullopt : customers_->access_of(customer);
  }
  /// Wraps the IPv4 packet behind the Ethernet header of a frame, which grows into its headroom:
  /// by `overhead`, or by the tag of a VLAN. Of the new Ethernet header, only what follows the
  /// tag's type is written.
  void wrap(Outgoing& frame, const Customers::Access& access) const;

 private:
  static constexpr unsigned kIp = 20;
  static constexpr unsigned kGre = 4;
  static constexpr unsigned kKey = 4;

  enum class Kind : std::uint8_t { none, tunnels, vlans };
  struct OnLink {
    Kind kind = Kind::none;
    End end;  ///< the tunnels', if there are some
  };

  Kind kind_on(unsigned link) const {
    return link < by_link_.size() ? by_link_[link].kind : Kind::none;
  }
  OnLink& on(unsigned link);
  bool unwrap(Burst& burst, unsigned i, const End& end) const;
  void unwrap_vlan(Burst& burst, unsigned i, unsigned link) const;
  Verdict verdict_on(const Burst& burst, unsigned i, const End& end) const;
  static Verdict verdict_in_vlans(const Burst& burst, unsigned i);

  std::shared_ptr<const Customers> customers_;
  std::vector<OnLink> by_link_;  // empty: there are no customers
};

}  // namespace millrace
