// Finds the worker of a packet: that of its customer. A part of NatV4.
#include <algorithm>
#include <optional>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "function/nat/nat.h"

namespace millrace {

/// Returns the port's customer `zone`, or else the one with that inside address.
std::optional<CustomerNumber> NatV4::customer_inside(Zone zone, const AddressV4& address) const {
  if (zone != 0) return zone;
  const NatRule* const rule = settings_->rule_of(0, address);
  return rule != nullptr ? std::optional(NatSettings::customer_by(*rule, 0, address))
                         : std::nullopt;
}

/// Returns the customer of a public end. A port that nobody has counts as its address's, unless it
/// is the host's own.
std::optional<CustomerNumber> NatV4::customer_at(const EndpointV4& outside,
                                                 std::uint8_t protocol) const {
  const auto* const forward = settings_->forwards.to(outside.address, outside.port, protocol);
  if (forward != nullptr) return forward->customer;
  if (!blocks_->has(outside.address)) return std::nullopt;
  const auto customer = blocks_->customer_at(outside);
  const bool may_be_hosts = (has_ports(protocol) || protocol == kProtocolIcmp) &&
                            std::ranges::binary_search(settings_->own, outside.address);
  if (customer || may_be_hosts) return customer;
  return number_of(outside.address);
}

/// Decides about the key at place `i`: steers by the customer, so that all his sessions have one
/// worker. That is the customer inside that sends the packet, else the one that gets it. Where no
/// port says whose a public end is, steers by the customer of a whole address, else by the remote
/// end, which nothing rewrites. If that is public, too, it is an owner: the host keeps packets to
/// public addresses that are steered by their destination.
void NatV4::steer(const KeyV4& key, unsigned i, bool looks_at_source, bool looks_at_destination,
                  Steered& steered) const {
  using Customer = std::optional<CustomerNumber>;
  const Zone zone = key.number_of_zone();
  Customer from;
  Customer to;
  if (looks_at_source) from = customer_inside(zone, key.source);
  if (looks_at_destination) to = customer_inside(0, key.destination);
  Customer owner = from;
  if (from && to) {
    // Between two customers by their inside addresses. If the one's source is translated, replies
    // go from the other to a public end, and so have the other's worker; if none is, both ways
    // need the same one.
    const bool is_translated = settings_->rule_for(zone, key.source, key.destination) != nullptr;
    const bool is_answer = settings_->rule_for(0, key.destination, key.source) != nullptr;
    owner = is_translated ? to : is_answer ? from : std::min(from, to);
  } else if (to) {
    owner = to;
  }
  const bool is_from_outside = !from && !to && looks_at_destination;
  if (is_from_outside) owner = customer_at(destination_of(key), key.protocol);
  if (!owner) return;
  if (!has_ports(key.protocol) && key.protocol != kProtocolIcmp) {
    const NatForwards& forwards = settings_->forwards;
    const NatForward* const whole = is_from_outside ? forwards.to(key.destination, 0, 0)
                                    : from          ? forwards.from(zone, key.source, 0, 0)
                                                    : nullptr;
    if (whole != nullptr) {
      owner = whole->customer;
    } else {
      if (from && to) return;
      const AddressV4& remote = from ? key.destination : key.source;
      if (!is_public(remote)) {
        (from ? steered.by_destination : steered.by_source) |= std::uint64_t{1} << i;
        return;
      }
      owner = number_of(remote);
    }
  }
  steered.by_owner |= std::uint64_t{1} << i;
  steered.owner[i] = address_with(*owner);
}

/// Returns the group of the customer inside with that address; none if there is none.
std::optional<unsigned> NatV4::group_inside(Zone zone, const AddressV4& address) const {
  const NatRule* const rule = settings_->rule_of(zone, address);
  if (rule != nullptr)
    return blocks_->group_of(NatSettings::customer_by(*rule, zone, address), rule->pool);
  return zone != 0 ? std::optional(blocks_->group_of(zone)) : std::nullopt;
}

/// Returns the group of the packet's customer, where customers have groups; none if it is of no
/// customer. An address is enough to say so, and all protocols have the same group. What customers
/// send to each other is not translated then (`screen`).
std::optional<unsigned> NatV4::group_of(const KeyV4& key, bool looks_at_source,
                                        bool looks_at_destination) const {
  std::optional<unsigned> from;
  std::optional<unsigned> to;
  if (looks_at_source) from = group_inside(key.number_of_zone(), key.source);
  if (looks_at_destination) to = group_inside(0, key.destination);
  if (from && to) return std::min(from, to);
  if (from || to || !looks_at_destination) return from ? from : to;
  const auto* const forward =
      settings_->forwards.to(key.destination, key.destination_port, key.protocol);
  if (forward != nullptr) return group_inside(zone_of(forward->customer), forward->inside);
  if (!blocks_->has(key.destination)) return std::nullopt;
  return blocks_->group_of(key.destination);
}

/// An end that a function before this one may rewrite is not looked at.
Steered NatV4::steer(std::span<const KeyV4> keys, const Steered& before) const {
  Steered steered;
  for (unsigned i = 0; i < keys.size(); ++i) {
    const bool looks_at_source = !before.is_by_destination(i);
    const bool looks_at_destination = !before.is_by_source(i);
    if (!blocks_->has_groups()) {
      steer(keys[i], i, looks_at_source, looks_at_destination, steered);
    } else if (const auto group = group_of(keys[i], looks_at_source, looks_at_destination)) {
      steered.by_owner |= std::uint64_t{1} << i;
      steered.by_number |= std::uint64_t{1} << i;
      steered.owner[i] = address_with(*group);
    }
  }
  return steered;
}

}  // namespace millrace
