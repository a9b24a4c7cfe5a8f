// The conditions of a rule, and the fields of a connection's first packet on which they depend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/prefix_table.h"

namespace millrace {

/// Most zones, the zones `kNoZone` and `kHostZone` included: a set of zones is a word.
inline constexpr unsigned kMostZones = 64;
/// Most named sets of prefixes.
inline constexpr unsigned kMostSets = 256;
/// The zone of addresses that are in no configured zone. Only rules that name no zone match it.
inline constexpr std::uint8_t kNoZone = 0;
/// millrace itself: the host's own and virtual addresses.
inline constexpr std::uint8_t kHostZone = 1;

/// A rule for as long as the process runs: the number of its name. 0: the default.
using RuleId = std::uint16_t;
inline constexpr std::size_t kRuleIds = 65'536;

/// Whole numbers from `first` to `last`.
struct Range {
  std::uint16_t first = 0;
  std::uint16_t last = 0xffff;

  friend auto operator<=>(const Range&, const Range&) = default;
};

/// Returns the message of an ICMP type and code as one number: it takes the place of the
/// destination port in ranges and packets.
constexpr std::uint16_t icmp_message(std::uint8_t type, std::uint8_t code) {
  return static_cast<std::uint16_t>(type << 8 | code);
}

/// The addresses that a rule names.
template <class A>
struct AddressMatch {
  bool any = true;  ///< every address; the other members are empty
  std::vector<Prefix<A>> prefixes;
  std::vector<std::uint16_t> sets;  ///< numbers of sets, whose prefixes change between plans
};

/// The conditions of a rule on packets of one family. An empty list is no condition.
template <class A>
struct RuleMatch {
  std::uint64_t from = ~std::uint64_t{0};  ///< zones, a bit each
  std::uint64_t to = ~std::uint64_t{0};
  std::vector<std::uint8_t> protocols;
  AddressMatch<A> source{};
  AddressMatch<A> destination{};
  std::vector<Range> source_ports;
  std::vector<Range> destination_ports;  ///< or ICMP messages
};

/// True if every packet that meets the conditions `b` meets the conditions `a`, whatever is in the
/// sets. May be false also where several conditions of `a` together cover one of `b`.
template <class A>
bool covers(const RuleMatch<A>& a, const RuleMatch<A>& b);

/// The fields of a connection's first packet.
template <class A>
struct PacketFields {
  A source{};       ///< source with which the packet arrived
  A destination{};  ///< destination with which the packet leaves
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;  ///< or the ICMP message; 0 for protocols without ports
  std::uint8_t protocol = 0;
  std::uint8_t from = kNoZone;
  std::uint8_t to = kNoZone;
};

}  // namespace millrace
