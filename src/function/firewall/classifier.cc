#include "function/firewall/classifier.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <set>
#include <utility>

namespace millrace {

auto RuleSets::add(std::vector<std::uint32_t> bits) -> Id {
  std::ranges::sort(bits);
  const auto next = static_cast<Id>(summaries_ == 0 ? 0 : parts_.size() / summaries_);
  const auto [at, is_new] = known_.emplace(std::move(bits), next);
  if (!is_new) return at->second;
  const std::size_t first = parts_.size();
  parts_.resize(first + summaries_);
  std::uint32_t last = 0xffffffff;
  for (const std::uint32_t bit : at->first) {
    Part& part = parts_[first + bit / kBlock];
    if (part.summary == 0) part.first = static_cast<std::uint32_t>(words_.size());
    if (bit / 64 != last) words_.push_back(0);
    last = bit / 64;
    part.summary |= std::uint64_t{1} << (last % 64);
    words_.back() |= std::uint64_t{1} << (bit % 64);
  }
  return at->second;
}

template <class A>
AddressSets<A>::AddressSets(std::span<const std::vector<Prefix<A>>> sets) {
  std::map<Prefix<A>, std::vector<std::uint16_t>> all;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (const Prefix<A>& prefix : sets[i]) all[prefix].push_back(static_cast<std::uint16_t>(i));
  }
  std::vector<Prefix<A>> prefixes;
  for (const auto& [prefix, of] : all) {
    prefixes.push_back(prefix);
    first_.push_back(static_cast<std::uint32_t>(of_.size()));
    of_.insert(of_.end(), of.begin(), of.end());
  }
  first_.push_back(static_cast<std::uint32_t>(of_.size()));
  prefixes_ = PrefixTable<A>(prefixes);
}

/// Returns the set of the rules for which `test` is true.
template <class A>
template <class Test>
RuleSets::Id Classifier<A>::those(Rules rules, Test&& test) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    if (test(rules[i])) all.push_back(bit_of_[i]);
  }
  return sets_.add(std::move(all));
}

/// Puts the rules into groups. Returns the bit of each rule; a group begins with a new word.
template <class A>
std::vector<std::uint32_t> Classifier<A>::make_groups(Rules rules) {
  std::map<unsigned, std::vector<std::uint32_t>> by_fields;
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    const RuleMatch<A>& rule = rules[i];
    const unsigned fields = (rule.source.any ? 0U : unsigned{kSource}) |
                            (rule.destination.any ? 0U : unsigned{kDestination}) |
                            (rule.source_ports.empty() ? 0U : unsigned{kSourcePort}) |
                            (rule.destination_ports.empty() ? 0U : unsigned{kDestinationPort});
    by_fields[fields].push_back(i);
  }
  std::vector<std::uint32_t> bits(rules.size());
  for (const auto& [fields, members] : by_fields) {
    const auto begin = static_cast<std::uint32_t>(rule_of_.size() / 64);
    for (const std::uint32_t rule : members) {
      bits[rule] = static_cast<std::uint32_t>(rule_of_.size());
      rule_of_.push_back(rule);
    }
    rule_of_.resize((rule_of_.size() + 63) / 64 * 64, kNone);
    groups_.push_back(
        {fields, members.front(), begin, static_cast<std::uint32_t>(rule_of_.size() / 64)});
  }
  std::ranges::sort(groups_, {}, &Group::first_rule);
  return bits;
}

template <class A>
template <class Member>
auto Classifier<A>::end_of(Rules rules, Member member) -> End {
  End end;
  std::map<Prefix<A>, std::vector<std::uint32_t>> by_prefix;
  std::vector<std::vector<std::uint32_t>> by_set;
  const auto append = [](std::vector<std::uint32_t>& to, std::uint32_t bit) {
    if (to.empty() || to.back() != bit) to.push_back(bit);
  };
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    const AddressMatch<A>& match = rules[i].*member;
    for (const Prefix<A>& prefix : match.prefixes) append(by_prefix[prefix], bit_of_[i]);
    for (const std::uint16_t set : match.sets) {
      by_set.resize(std::max<std::size_t>(by_set.size(), set + 1U));
      append(by_set[set], bit_of_[i]);
    }
  }
  std::vector<Prefix<A>> prefixes;
  for (auto& [prefix, named_by] : by_prefix) {
    prefixes.push_back(prefix);
    end.by_prefix.push_back(sets_.add(std::move(named_by)));
  }
  end.prefixes = PrefixTable<A>(prefixes);
  for (auto& named_by : by_set) end.by_set.push_back(sets_.add(std::move(named_by)));
  return end;
}

template <class A>
template <class Member>
auto Classifier<A>::ports_of(Rules rules, Member member) -> Ports {
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, bool>>> changes;  // by port
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    for (const Range& range : rules[i].*member) {
      changes[range.first].emplace_back(bit_of_[i], true);
      changes[range.last + 1U].emplace_back(bit_of_[i], false);
    }
  }
  std::vector<typename Ports::Bound> bounds;
  std::multiset<std::uint32_t> open;  // once for each range of a rule
  for (const auto& [port, here] : changes) {
    if (port > 0xffff) break;
    for (const auto& [bit, begins] : here) {
      if (begins) {
        open.insert(bit);
      } else {
        open.erase(open.find(bit));
      }
    }
    std::vector<std::uint32_t> distinct(open.begin(), open.end());
    distinct.erase(std::ranges::unique(distinct).begin(), distinct.end());
    bounds.push_back({static_cast<std::uint16_t>(port), sets_.add(std::move(distinct))});
  }
  return Ports(bounds, sets_.add({}));
}

template <class A>
Classifier<A>::Classifier(Rules rules)
    : bit_of_(make_groups(rules)),
      sets_(rule_of_.size()),
      source_(end_of(rules, &RuleMatch<A>::source)),
      destination_(end_of(rules, &RuleMatch<A>::destination)),
      source_ports_(ports_of(rules, &RuleMatch<A>::source_ports)),
      destination_ports_(ports_of(rules, &RuleMatch<A>::destination_ports)) {
  std::set<std::uint8_t> named;
  for (const auto& rule : rules) named.insert(rule.protocols.begin(), rule.protocols.end());
  const auto with = [&](unsigned protocol) {
    return those(rules, [protocol](const auto& rule) {
      return rule.protocols.empty() || std::ranges::count(rule.protocols, protocol) != 0;
    });
  };
  constexpr unsigned kNoProtocol = 256;
  protocols_.fill(with(kNoProtocol));
  for (const std::uint8_t protocol : named) protocols_[protocol] = with(protocol);
  for (unsigned zone = 0; zone < kMostZones; ++zone) {
    from_[zone] = those(rules, [zone](const auto& rule) { return (rule.from >> zone & 1) != 0; });
    to_[zone] = those(rules, [zone](const auto& rule) { return (rule.to >> zone & 1) != 0; });
  }
  sets_.finish();
}

/// The union of some sets.
template <class A>
class Classifier<A>::Union {
 public:
  void add(Parts parts) { of_[size_++] = parts; }
  std::uint64_t summary(std::size_t part) const {
    std::uint64_t all = 0;
    for (unsigned i = 0; i < size_; ++i) all |= of_[i][part].summary;
    return all;
  }
  std::uint64_t word(const RuleSets& sets, std::size_t part, std::uint64_t bit) const {
    std::uint64_t all = 0;
    for (unsigned i = 0; i < size_; ++i) all |= sets.word(of_[i][part], bit);
    return all;
  }

 private:
  /// One for each length of a prefix around the address, one for each set.
  static constexpr std::size_t kMost = 8 * A::kBytes + 1 + kMostSets;

  unsigned size_ = 0;
  std::array<Parts, kMost> of_;
};

/// The sets of a packet's fields.
template <class A>
struct Classifier<A>::Found {
  Union source;
  Union destination;
  Parts source_port;
  Parts destination_port;
  std::array<Parts, 3> always;  ///< protocol and zones, which count in all groups
};

template <class A>
void Classifier<A>::gather(const End& end, const A& address, const AddressSets<A>& sets,
                           Union& all) const {
  end.prefixes.for_each_around(
      address, [&](std::uint32_t prefix) { all.add(sets_.parts_of(end.by_prefix[prefix])); });
  if (end.by_set.empty()) return;
  std::bitset<kMostSets> seen;
  sets.for_each(address, [&](std::uint16_t set) {
    if (set >= end.by_set.size() || seen[set]) return;
    seen[set] = true;
    all.add(sets_.parts_of(end.by_set[set]));
  });
}

/// Returns the first rule of the group that matches.
template <class A>
std::uint32_t Classifier<A>::find_in(const Group& group, const Found& found) const {
  const bool by_source = (group.fields & kSource) != 0;
  const bool by_destination = (group.fields & kDestination) != 0;
  std::array<Parts, 5> single;
  unsigned count = 0;
  if ((group.fields & kDestinationPort) != 0) single[count++] = found.destination_port;
  if ((group.fields & kSourcePort) != 0) single[count++] = found.source_port;
  for (const Parts parts : found.always) single[count++] = parts;
  for (std::uint32_t part = group.begin / 64; part <= (group.end - 1) / 64; ++part) {
    // The group's words of this part.
    std::uint64_t words = ~std::uint64_t{0};
    if (part == group.begin / 64) words &= ~std::uint64_t{0} << group.begin % 64;
    if (part == (group.end - 1) / 64) words &= ~std::uint64_t{0} >> (63 - (group.end - 1) % 64);
    if (by_source) words &= found.source.summary(part);
    if (by_destination) words &= found.destination.summary(part);
    for (unsigned i = 0; i < count; ++i) words &= single[i][part].summary;
    for (; words != 0; words &= words - 1) {
      const std::uint64_t bit = words & -words;
      std::uint64_t match = ~std::uint64_t{0};
      if (by_source) match &= found.source.word(sets_, part, bit);
      if (by_destination) match &= found.destination.word(sets_, part, bit);
      for (unsigned i = 0; i < count; ++i) match &= sets_.word(single[i][part], bit);
      if (match == 0) continue;
      const std::size_t word = part * 64 + static_cast<unsigned>(std::countr_zero(bit));
      return rule_of_[word * 64 + static_cast<unsigned>(std::countr_zero(match))];
    }
  }
  return kNone;
}

template <class A>
std::uint32_t Classifier<A>::find(const PacketFields<A>& packet, const AddressSets<A>& sets) const {
  if (groups_.empty()) return kNone;
  Found found;
  gather(source_, packet.source, sets, found.source);
  gather(destination_, packet.destination, sets, found.destination);
  found.source_port = sets_.parts_of(source_ports_.find(packet.source_port));
  found.destination_port = sets_.parts_of(destination_ports_.find(packet.destination_port));
  found.always = {sets_.parts_of(protocols_[packet.protocol]), sets_.parts_of(from_[packet.from]),
                  sets_.parts_of(to_[packet.to])};
  std::uint32_t first = kNone;
  for (const Group& group : groups_) {
    if (group.first_rule >= first) break;
    first = std::min(first, find_in(group, found));
  }
  return first;
}

template <class A>
std::size_t Classifier<A>::memory_bytes() const {
  std::size_t all = sets_.memory_bytes() + source_ports_.memory_bytes() +
                    destination_ports_.memory_bytes() +
                    (rule_of_.capacity() + bit_of_.capacity()) * sizeof(std::uint32_t);
  for (const End* end : {&source_, &destination_}) {
    all += end->prefixes.memory_bytes() +
           (end->by_prefix.capacity() + end->by_set.capacity()) * sizeof(RuleSets::Id);
  }
  return all;
}

template class AddressSets<AddressV4>;
template class AddressSets<AddressV6>;
template class Classifier<AddressV4>;
template class Classifier<AddressV6>;

}  // namespace millrace
