// Reads the ends of a [[nat.forward]], and finds ends that are there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "function/nat/forwards.h"
#include "toml/keys.h"

namespace millrace::config {

/// Reads "198.51.100.1:8443/tcp", or an address alone.
std::optional<NatForward> public_end(Problems& problems, const Text& text);
/// Reads "10.0.0.5:443", or an address alone: the port is then the public one.
bool take_inside(Problems& problems, const Text& text, NatForward& forward);

/// The ends of forwards, each with its place in a list.
class ForwardEnds {
 public:
  void add(const NatForward& forward, std::size_t place);
  /// Returns the place of a forward with the same public end, or one that contains the other.
  std::optional<std::size_t> overlapping(const NatForward& forward) const;
  /// Returns, for a whole address, the place of another one to the same inside address.
  std::optional<std::size_t> whole_to(const NatForward& forward) const;

 private:
  using PublicEnd = std::tuple<AddressV4, std::uint16_t, std::uint8_t>;  // port, protocol

  static PublicEnd end_of(const NatForward& of) { return {of.address, of.port, of.protocol}; }

  std::map<PublicEnd, std::size_t> at_;
  std::map<std::pair<CustomerNumber, AddressV4>, std::size_t> whole_;  // by inside
};

}  // namespace millrace::config
