#include "function/nat/forward_ends.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "core/address.h"
#include "core/parameters.h"
#include "core/protocol.h"
#include "toml/addresses.h"

namespace millrace::config {

std::optional<NatForward> public_end(Problems& problems, const Text& text) {
  const AddressAndBits parts(text.value);
  const auto end = parse_backend(parts.address);
  const auto* const address = end ? std::get_if<AddressV4>(&end->address) : nullptr;
  NatForward forward;
  if (address != nullptr && !end->port && !parts.bits) {
    forward.address = *address;
    return forward;
  }
  const auto named = std::ranges::find(protocols(), parts.bits.value_or(""),
                                       &std::pair<std::string_view, std::uint8_t>::first);
  if (address == nullptr || end->port.value_or(0) == 0 || named == protocols().end() ||
      !has_ports(named->second)) {
    problems.add(text.line, "nat.forward.public",
                 in_quotes(text.value) +
                     " is no public end: give one like \"198.51.100.1:8443/tcp\", or an IPv4 "
                     "address alone for all its ports");
    return std::nullopt;
  }
  forward.address = *address;
  forward.port = *end->port;
  forward.protocol = named->second;
  return forward;
}

bool take_inside(Problems& problems, const Text& text, NatForward& forward) {
  const auto end = parse_backend(text.value);
  const auto* const address = end ? std::get_if<AddressV4>(&end->address) : nullptr;
  const bool is_port_wrong = end && end->port && (forward.is_whole() || *end->port == 0);
  if (address == nullptr || is_port_wrong) {
    problems.add(text.line, "nat.forward.inside",
                 in_quotes(text.value) +
                     (forward.is_whole()
                          ? " is no IPv4 address: give one like \"10.0.0.5\", without a port, as "
                            "all ports of the public address go there"
                          : " is no inside endpoint: give one like \"10.0.0.5:443\""));
    return false;
  }
  forward.inside = *address;
  if (!forward.is_whole()) forward.inside_port = end->port.value_or(forward.port);
  return true;
}

void ForwardEnds::add(const NatForward& forward, std::size_t place) {
  at_.emplace(end_of(forward), place);
  if (forward.is_whole()) whole_.emplace(std::pair{forward.customer, forward.inside}, place);
}

std::optional<std::size_t> ForwardEnds::overlapping(const NatForward& forward) const {
  // A whole address has no port, and comes before the ports of the address.
  const PublicEnd whole{forward.address, 0, 0};
  const auto first = at_.lower_bound(whole);
  if (first == at_.end() || std::get<0>(first->first) != forward.address) return std::nullopt;
  if (forward.is_whole() || first->first == whole) return first->second;
  const auto same = at_.find(end_of(forward));
  return same == at_.end() ? std::nullopt : std::optional(same->second);
}

std::optional<std::size_t> ForwardEnds::whole_to(const NatForward& forward) const {
  const auto same = whole_.find({forward.customer, forward.inside});
  if (!forward.is_whole() || same == whole_.end()) return std::nullopt;
  return same->second;
}

}  // namespace millrace::config
