// Makes rule sets like those of real packet filters, and packets to ask a classifier about. For
// benchmarks and tests.
//
// The model is ClassBench (Taylor and Turner, "ClassBench: A Packet Classification Benchmark",
// INFOCOM 2005) and its published parameter files acl1, fw1 and ipc1, each the statistics of one
// real filter set for IPv4. From these files come, rounded and with rare cases merged
// (rule_mix_shares.h):
// - the share of each protocol, and for each protocol the share of each pair of port classes,
// - for each pair of port classes the shares of the pairs of prefix lengths, source and destination
//   together,
// - how likely source and destination lie in one site, and how many port ranges a set has.
// From ClassBench's paper come the port classes, the drawing of addresses along a binary trie whose
// nodes have one child or two children of unequal weight, and packets drawn from rules.
//
// Approximations of ours:
// - The trie's forks are drawn from fixed weights by depth, not from a file's figures for each
//   depth. There are more of them in a larger set, so that a prefix of a large set has few rules,
//   but more than one. ClassBench's sets of 50,000 rules reuse almost no prefix, except for /0.
// - ClassBench's files allow 4 or 5 nested prefixes. Here an address is drawn again if 4 prefixes
//   contain it, but a wide prefix that is drawn late may make a deeper nest. Of 50,000 rules most
//   have prefixes that are 2 to 6 deep; the deepest are about 12 deep.
// - Exact ports are well-known ones, the first of them used most, and a few arbitrary ones.
// - IPv6 has the same trie and shares. Each prefix length of IPv4 stands for a usual one of IPv6:
//   /32, /48, /56, /64 or /128.
// - ClassBench's flags of TCP and types of ICMP are left out; `low` (fw4) is added to `firewall`.
// - What a rule decides, and where it stands in the list: narrow rules come before wide ones,
// except
//   for some disorder, and a few rules are placed behind a rule that covers them.
// - Packets: ClassBench picks rules evenly, takes corners of a rule and repeats packets. Here some
//   rules are picked more often (Zipf), a packet is anywhere in its rule, and none is repeated.
//
// Any thread may call these functions. The same seed gives the same rules and packets on every
// machine.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/key.h"

namespace millrace {

enum class RuleMix : std::uint8_t {
  acl,       ///< a router's access list: mostly host to host, TCP, one destination port
  firewall,  ///< a corporate firewall: one side is mostly /0, the other side a host
  ipc,       ///< a chain of a Linux filter: networks and hosts, with few patterns
};
/// Returns the mix of that name; none if no mix has it.
std::optional<RuleMix> rule_mix_named(std::string_view name);
std::string_view to_string(RuleMix mix);

/// ClassBench's classes of port ranges.
enum class PortClass : std::uint8_t {
  any,    ///< WC: 0 to 65535
  high,   ///< HI: 1024 to 65535
  low,    ///< LO: 0 to 1023
  range,  ///< AR: any other range
  exact,  ///< EM: one port
};
PortClass port_class(std::uint16_t first, std::uint16_t last);

template <class A>
struct MixRule {
  struct Prefix {
    A address;          ///< the bits behind the prefix are 0
    unsigned bits = 0;  ///< 0 to 32 or 128
    friend auto operator<=>(const Prefix&, const Prefix&) = default;
  };
  Prefix source, destination;
  std::uint16_t first_source_port = 0, last_source_port = 65'535;
  std::uint16_t first_destination_port = 0, last_destination_port = 65'535;
  std::uint8_t protocol = 0;  ///< 0: any (protocol 0 is never a packet's)
  bool accepts = true;

  friend auto operator<=>(const MixRule&, const MixRule&) = default;
};

/// Returns `count` rules, 1 or more, the one with the highest priority first: a packet gets the
/// decision of the first rule that it matches. No two rules match exactly the same packets. Returns
/// fewer rules if so many different ones are not found.
template <class A>
std::vector<MixRule<A>> make_rules(RuleMix mix, std::size_t count, std::uint64_t seed);

/// Returns true if the rule decides about packets with this key, unless an earlier rule does. The
/// key's zone does not count.
template <class A>
bool matches(const MixRule<A>& rule, const Key<A>& key);

/// Returns true if every packet that matches `inner` matches `outer`, too.
template <class A>
bool covers(const MixRule<A>& outer, const MixRule<A>& inner);

/// Returns `count` keys with uniformly random addresses and ports; 70 % are of TCP, 25 % of UDP, 5
/// % of ICMP. The zone is 0.
template <class A>
std::vector<Key<A>> uniform_packets(std::size_t count, std::uint64_t seed);

template <class A>
struct MixPacket {
  Key<A> key;        ///< its zone is 0
  std::size_t rule;  ///< the key was drawn from this rule; an earlier one may match, too
};
/// Returns `count` packets, each from a random place in one of the rules. The frequencies of the
/// rules fall with their rank (Zipf), in an order that has nothing to do with their priorities.
/// `rules` has 1 to 2^31 - 1 elements.
template <class A>
std::vector<MixPacket<A>> packets_of(std::span<const MixRule<A>> rules, std::size_t count,
                                     std::uint64_t seed);

}  // namespace millrace
