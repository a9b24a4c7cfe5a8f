// Tunnels of customers: GRE over IPv4 (RFC 2784, RFC 2890), with IPv4 inside. Packets of a customer
// are unwrapped before they are parsed, so that the line sees plain packets with the customer's
// number, and wrapped again when they leave to him.
//
// A packet with another outer header than the usual one is not unwrapped, and dropped with a
// reason: with options, in fragments, of no customer, with a wrong checksum. The tunnel copies the
// traffic class, and passes congestion on (RFC 2983, 4; RFC 6040, 4).
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

  /// `customers` may be null: there are no tunnels.
  Tunnels(std::shared_ptr<const Customers> customers, std::span<const End> ends);

  /// True if a port has tunnels.
  bool are_there() const { return !by_link_.empty(); }
  bool are_on(unsigned link) const { return link < by_link_.size() && by_link_[link].is_there; }

  /// Unwraps packets of a burst that is not parsed yet, and arrived on one link: these stand in
  /// `Burst::from_customer`, and their frames begin with an Ethernet header directly before the
  /// inner packet.
  void unwrap(Burst& burst, const Arrival& arrival) const;
  /// Gives the parsed keys of unwrapped packets their customer's number, and drops the packets of
  /// tunnels that were not unwrapped.
  void file(Burst& burst, std::span<const Arrival> arrivals) const;

  /// Bytes that a tunnel adds to a packet.
  static unsigned overhead(const Customers::Tunnel& tunnel) {
    return kIp + kGre + (tunnel.key ? kKey : 0);
  }
  /// Returns the customer's tunnel; none if there is no such customer.
  std::optional<Customers::Tunnel> tunnel_of(Zone customer) const {
    return customers_ == nullptr ? std::nullopt : customers_->tunnel_of(customer);
  }
  /// Wraps the IPv4 packet behind the Ethernet header of a frame, which grows by `overhead` into
  /// its headroom. The new Ethernet header is not written.
  void wrap(Outgoing& frame, const Customers::Tunnel& tunnel) const;

 private:
  static constexpr unsigned kIp = 20;
  static constexpr unsigned kGre = 4;
  static constexpr unsigned kKey = 4;

  struct OnLink {
    bool is_there = false;
    End end;
  };

  bool unwrap(Burst& burst, unsigned i, const End& end) const;
  Verdict verdict_on(const Burst& burst, unsigned i, const End& end) const;

  std::shared_ptr<const Customers> customers_;
  std::vector<OnLink> by_link_;  // empty: there are no tunnels
};

}  // namespace millrace
