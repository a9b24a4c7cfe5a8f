#include "bench/rule_mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/rule_mix_shares.h"

namespace millrace {
namespace {

constexpr std::array kMixes{RuleMix::acl, RuleMix::firewall, RuleMix::ipc};
constexpr std::size_t kRules = 3000;

const rule_mix::Shares& shares_of(RuleMix mix) {
  return rule_mix::kShares[static_cast<std::size_t>(mix)];
}

template <class Choices>
double total_share(const Choices& choices) {
  double total = 0;
  for (const auto& one : choices) total += one.share;
  return total;
}

/// Expects shares that differ by at most 3 percentage points. They differ more than by chance:
/// drawn rules that are there already are left out.
template <class Thing>
void expect_near(const std::map<Thing, double>& expected, const std::map<Thing, double>& found) {
  for (const auto& [thing, share] : expected) {
    const auto at = found.find(thing);
    EXPECT_NEAR(at == found.end() ? 0 : at->second, share, 0.03) << ::testing::PrintToString(thing);
  }
}

template <class A>
double covered_share(const std::vector<MixRule<A>>& rules) {
  std::size_t covered = 0;
  for (auto rule = rules.begin(); rule != rules.end(); ++rule) {
    covered += std::any_of(rules.begin(), rule,
                           [&rule](const MixRule<A>& earlier) { return covers(earlier, *rule); })
                   ? 1
                   : 0;
  }
  return static_cast<double>(covered) / static_cast<double>(rules.size());
}

template <class A>
class RuleMixes : public ::testing::Test {};
using Families = ::testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(RuleMixes, Families);

TYPED_TEST(RuleMixes, AreTheSameForTheSameSeed) {
  for (const RuleMix mix : kMixes) {
    const auto rules = make_rules<TypeParam>(mix, 500, 7);
    EXPECT_EQ(rules.size(), 500u);
    EXPECT_EQ(rules, make_rules<TypeParam>(mix, 500, 7));
    EXPECT_NE(rules, make_rules<TypeParam>(mix, 500, 8));
  }
}

TYPED_TEST(RuleMixes, HaveNoRuleTwice) {
  for (const RuleMix mix : kMixes) {
    auto rules = make_rules<TypeParam>(mix, kRules, 1);
    for (auto& rule : rules) rule.accepts = false;
    EXPECT_EQ((std::set<MixRule<TypeParam>>(rules.begin(), rules.end()).size()), kRules);
  }
}

TYPED_TEST(RuleMixes, HaveFewRulesWithoutEffect) {
  for (const RuleMix mix : kMixes) {
    const double covered = covered_share(make_rules<TypeParam>(mix, kRules, 2));
    EXPECT_GE(covered, 0.01) << to_string(mix);
    EXPECT_LE(covered, 0.05) << to_string(mix);
  }
}

TYPED_TEST(RuleMixes, UsePrefixesAgainAndNestThem) {
  for (const RuleMix mix : kMixes) {
    const auto rules = make_rules<TypeParam>(mix, kRules, 3);
    std::set<typename MixRule<TypeParam>::Prefix> sources;
    for (const auto& rule : rules) sources.insert(rule.source);
    EXPECT_LT(sources.size(), kRules * 3 / 4) << to_string(mix);
    std::size_t nested = 0;
    for (auto at = std::next(sources.begin()); at != sources.end(); ++at) {
      MixRule<TypeParam> outer, inner;
      outer.source = *std::prev(at);
      inner.source = *at;
      if (outer.source.bits > 0 && covers(outer, inner)) ++nested;
    }
    EXPECT_GT(nested, sources.size() / 20) << to_string(mix);
  }
}

TYPED_TEST(RuleMixes, HaveTheSharesOfProtocolsAndPortClasses) {
  using Service = std::tuple<std::uint8_t, PortClass, PortClass>;
  for (const RuleMix mix : kMixes) {
    SCOPED_TRACE(to_string(mix));
    const auto& services = shares_of(mix).services;
    std::map<Service, double> expected, found;
    for (const auto& one : services) {
      expected[{one.protocol, one.source, one.destination}] += one.share / total_share(services);
    }
    for (const auto& rule : make_rules<TypeParam>(mix, kRules, 4)) {
      const std::uint8_t protocol = rule.protocol == 58 ? 1 : rule.protocol;
      found[{protocol, port_class(rule.first_source_port, rule.last_source_port),
             port_class(rule.first_destination_port, rule.last_destination_port)}] += 1.0 / kRules;
    }
    expect_near(expected, found);
  }
}

TEST(RuleMixesOfIpv4, HaveTheSharesOfPairsOfLengths) {
  using Pair = std::pair<unsigned, unsigned>;
  for (const RuleMix mix : kMixes) {
    SCOPED_TRACE(to_string(mix));
    const auto& shares = shares_of(mix);
    std::map<Pair, double> expected, found;
    for (const auto& service : shares.services) {
      const auto lengths = rule_mix::lengths_of(shares, service.source, service.destination);
      const double share = service.share / total_share(shares.services) / total_share(lengths);
      for (const auto& one : lengths) expected[{one.source, one.destination}] += share * one.share;
    }
    expected.erase({0, 0});  // there are not so many different rules without addresses
    for (const auto& rule : make_rules<AddressV4>(mix, kRules, 5)) {
      found[{rule.source.bits, rule.destination.bits}] += 1.0 / kRules;
    }
    expect_near(expected, found);
  }
}

TEST(RuleMixesOfIpv6, HaveUsualLengths) {
  const std::set<unsigned> usual{0, 32, 48, 56, 64, 128};
  for (const RuleMix mix : kMixes) {
    const auto rules = make_rules<AddressV6>(mix, kRules, 6);
    const auto unusual = std::ranges::count_if(rules, [&usual](const auto& rule) {
      return !usual.contains(rule.source.bits) || !usual.contains(rule.destination.bits);
    });
    EXPECT_LE(unusual, static_cast<std::ptrdiff_t>(kRules / 50)) << to_string(mix);
  }
}

TYPED_TEST(RuleMixes, GivePacketsThatMatchTheirRule) {
  for (const RuleMix mix : kMixes) {
    const auto rules = make_rules<TypeParam>(mix, 500, 7);
    std::map<std::size_t, std::size_t> packets_of_rule;
    for (const auto& [key, rule] : packets_of<TypeParam>(rules, 20'000, 8)) {
      ASSERT_TRUE(matches(rules.at(rule), key)) << to_string(mix) << " rule " << rule;
      ++packets_of_rule[rule];
    }
    const auto most =
        std::ranges::max_element(packets_of_rule, {}, [](const auto& one) { return one.second; });
    EXPECT_GT(most->second, 20'000u / 500 * 10) << to_string(mix);
    EXPECT_GT(packets_of_rule.size(), 400u) << to_string(mix);
  }
}

TYPED_TEST(RuleMixes, GiveUniformPackets) {
  const auto keys = uniform_packets<TypeParam>(10'000, 9);
  ASSERT_EQ(keys.size(), 10'000u);
  EXPECT_EQ(keys, uniform_packets<TypeParam>(10'000, 9));
  const auto upper_half = std::ranges::count_if(
      keys, [](const auto& key) { return (key.destination.bytes[0] & 0x80) != 0; });
  EXPECT_NEAR(static_cast<double>(upper_half), 5'000, 250);
  EXPECT_TRUE(std::ranges::all_of(keys, [](const auto& key) {
    return key.protocol != 0 && matches(MixRule<TypeParam>{}, key);
  }));
}

TEST(RuleMix, HasNames) {
  for (const RuleMix mix : kMixes) EXPECT_EQ(rule_mix_named(to_string(mix)), mix);
  EXPECT_FALSE(rule_mix_named("fw").has_value());
}

TEST(PortClass, IsThatOfClassBench) {
  EXPECT_EQ(port_class(0, 65'535), PortClass::any);
  EXPECT_EQ(port_class(1024, 65'535), PortClass::high);
  EXPECT_EQ(port_class(0, 1023), PortClass::low);
  EXPECT_EQ(port_class(1, 1023), PortClass::range);
  EXPECT_EQ(port_class(80, 80), PortClass::exact);
}

TEST(MixRule, MatchesAndCoversByAllFields) {
  MixRule<AddressV4> rule;
  rule.source = {{{10, 1, 0, 0}}, 18};
  rule.first_destination_port = 80;
  rule.last_destination_port = 90;
  rule.protocol = 6;
  const KeyV4 key{{{10, 1, 63, 9}}, {{192, 0, 2, 1}}, 1024, 90, 6, {}};
  EXPECT_TRUE(matches(rule, key));
  KeyV4 other = key;
  other.source.bytes[2] = 64;
  EXPECT_FALSE(matches(rule, other));
  other = key;
  other.destination_port = 91;
  EXPECT_FALSE(matches(rule, other));
  other = key;
  other.protocol = 17;
  EXPECT_FALSE(matches(rule, other));

  MixRule<AddressV4> inner = rule;
  EXPECT_TRUE(covers(rule, inner));
  inner.source = {{{10, 1, 32, 0}}, 19};
  inner.first_destination_port = 81;
  EXPECT_TRUE(covers(rule, inner));
  EXPECT_FALSE(covers(inner, rule));
  inner.last_destination_port = 91;
  EXPECT_FALSE(covers(rule, inner));
}

}  // namespace
}  // namespace millrace
