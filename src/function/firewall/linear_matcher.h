// Finds the first rule that matches a packet by asking rule after rule: the oracle of tests and
// benchmarks for `Classifier`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "function/firewall/classifier.h"

namespace millrace {

template <class A>
std::uint32_t find_linearly(std::span<const RuleMatch<A>> rules,
                            std::span<const std::vector<Prefix<A>>> sets,
                            const PacketFields<A>& packet) {
  const auto contains = [](const std::vector<Prefix<A>>& prefixes, const A& address) {
    return std::ranges::any_of(prefixes,
                               [&](const Prefix<A>& one) { return one.contains(address); });
  };
  const auto names = [&](const AddressMatch<A>& match, const A& address) {
    return match.any || contains(match.prefixes, address) ||
           std::ranges::any_of(match.sets, [&](auto set) { return contains(sets[set], address); });
  };
  const auto has = [](const std::vector<Range>& ranges, unsigned port) {
    return ranges.empty() || std::ranges::any_of(ranges, [port](const Range& range) {
             return range.first <= port && port <= range.last;
           });
  };
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    const RuleMatch<A>& rule = rules[i];
    const auto& protocols = rule.protocols;
    if ((rule.from >> packet.from & rule.to >> packet.to & 1) != 0 &&
        (protocols.empty() || std::ranges::count(protocols, packet.protocol) != 0) &&
        names(rule.source, packet.source) && names(rule.destination, packet.destination) &&
        has(rule.source_ports, packet.source_port) &&
        has(rule.destination_ports, packet.destination_port))
      return i;
  }
  return Classifier<A>::kNone;
}
template <class A>
std::uint32_t find_linearly(const std::vector<RuleMatch<A>>& rules,
                            const std::vector<std::vector<Prefix<A>>>& sets,
                            const PacketFields<A>& packet) {
  return find_linearly(std::span(rules), std::span(sets), packet);
}

}  // namespace millrace
