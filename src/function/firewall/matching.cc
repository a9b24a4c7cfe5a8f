#include "function/firewall/matching.h"

#include <algorithm>

#include "millrace/key.h"

namespace millrace {
namespace {

/// True if each condition of `b` lies within one of `a`; an empty list is no condition.
template <class T, class Within>
bool covers(const std::vector<T>& a, const std::vector<T>& b, Within within) {
  if (a.empty() || b.empty()) return a.empty();
  return std::ranges::all_of(b, [&](const T& of_b) {
    return std::ranges::any_of(a, [&](const T& of_a) { return within(of_b, of_a); });
  });
}

template <class A>
bool is_within(const Prefix<A>& small, const Prefix<A>& large) {
  return small.bits >= large.bits && prefix_of(small.address, large.bits) == large.address;
}
bool is_within(const Range& small, const Range& large) {
  return small.first >= large.first && small.last <= large.last;
}

template <class A>
bool covers(const AddressMatch<A>& a, const AddressMatch<A>& b) {
  if (a.any || b.any) return a.any;
  const auto has_prefix = [&a](const Prefix<A>& of_b) {
    return std::ranges::any_of(a.prefixes, [&](const auto& of_a) { return is_within(of_b, of_a); });
  };
  const auto has_set = [&a](std::uint16_t set) {
    return std::ranges::find(a.sets, set) != a.sets.end();
  };
  return std::ranges::all_of(b.prefixes, has_prefix) && std::ranges::all_of(b.sets, has_set);
}

}  // namespace

template <class A>
bool covers(const RuleMatch<A>& a, const RuleMatch<A>& b) {
  if (b.from == 0 || b.to == 0) return true;
  const auto within = [](const auto& small, const auto& large) { return is_within(small, large); };
  return (b.from & ~a.from) == 0 && (b.to & ~a.to) == 0 &&
         covers(a.protocols, b.protocols, std::equal_to<>()) && covers(a.source, b.source) &&
         covers(a.destination, b.destination) && covers(a.source_ports, b.source_ports, within) &&
         covers(a.destination_ports, b.destination_ports, within);
}

template bool covers(const RuleMatch<AddressV4>&, const RuleMatch<AddressV4>&);
template bool covers(const RuleMatch<AddressV6>&, const RuleMatch<AddressV6>&);

}  // namespace millrace
