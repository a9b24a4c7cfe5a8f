// Finds the worker of a packet: that of its customer. A part of NatV4.
#include <algorithm>
#include <optional>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "function/nat/nat.h"

namespace millrace {

/// Returns the customer at an end: the port's customer `zone`, or else the one inside or behind a
/// public port. A public port that nobody has counts as its address's, unless it is the host's own.
std::optional<CustomerNumber> NatV4::customer_of(Zone zone, const EndpointV4& end,
                                                 std::uint8_t protocol) const {
  if (zone != 0) return zone;
  if (const auto* is = settings_->forwards.to(end.address, end.port, protocol)) return is->customer;
  if (const NatRule* const rule = settings_->rule_of(0, end.address))
    return NatSettings::customer_by(*rule, 0, end.address);
  if (!blocks_->has(end.address)) return std::nullopt;
  const auto customer = blocks_->customer_at(end);
  if (customer || std::ranges::binary_search(settings_->own, end.address)) return customer;
  return number_of(end.address);
}

/// Returns the customer of a forward of a whole address, from either of its addresses.
std::optional<CustomerNumber> NatV4::whole_customer_of(Zone zone, const AddressV4& address) const {
  const NatForward* is = settings_->forwards.from(zone, address, 0, 0);
  if (is == nullptr && zone == 0) is = settings_->forwards.to(address, 0, 0);
  return is != nullptr ? std::optional(is->customer) : std::nullopt;
}

/// Steers by the customer, so that all his sessions have one worker; a session of two customers,
/// by the one with the lesser address. Where no port says which customer a packet is for, steers by
/// the customer of a whole address, or else by the remote end, which nothing rewrites. An end that
/// a function before this one may rewrite is not looked at.
Steered NatV4::steer(std::span<const KeyV4> keys, const Steered& before) const {
  Steered steered;
  for (unsigned i = 0; i < keys.size(); ++i) {
    using Customer = std::optional<CustomerNumber>;
    const KeyV4& key = keys[i];
    const bool has_source = !before.is_by_destination(i);
    const bool has_destination = !before.is_by_source(i);
    const Zone zone = key.number_of_zone();
    Customer source;
    Customer destination;
    if (has_source) source = customer_of(zone, source_of(key), key.protocol);
    if (has_destination) destination = customer_of(0, destination_of(key), key.protocol);
    if (!source && !destination) continue;
    if (!has_ports(key.protocol) && key.protocol != kProtocolIcmp) {
      Customer whole_source;
      Customer whole_destination;
      if (has_source) whole_source = whole_customer_of(zone, key.source);
      if (has_destination) whole_destination = whole_customer_of(0, key.destination);
      if (!whole_source && !whole_destination) {
        if (!source) steered.by_source |= std::uint64_t{1} << i;
        if (!destination) steered.by_destination |= std::uint64_t{1} << i;
        continue;
      }
      source = whole_source;
      destination = whole_destination;
    }
    steered.by_owner |= std::uint64_t{1} << i;
    steered.owner[i] = address_with(source && destination ? std::min(*source, *destination)
                                    : source              ? *source
                                                          : *destination);
  }
  return steered;
}

}  // namespace millrace
