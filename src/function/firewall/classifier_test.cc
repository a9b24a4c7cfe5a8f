// Tests the classifier against a linear search. bench/rules.cc does so with large sets of rules.
#include "function/firewall/classifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "core/test_seed.h"
#include "function/firewall/linear_matcher.h"

namespace millrace {
namespace {

template <class A>
class ClassifierTest : public testing::Test {
 public:
  using Rules = std::vector<RuleMatch<A>>;
  using Sets = std::vector<std::vector<Prefix<A>>>;

  std::uint64_t below(std::uint64_t end) { return random() % end; }
  bool one_in(unsigned times) { return below(times) == 0; }

  A any_address() {
    A address;
    for (std::uint8_t& byte : address.bytes) byte = static_cast<std::uint8_t>(below(3) * 0x7f);
    return address;
  }
  Prefix<A> any_prefix() {
    const auto bits = static_cast<unsigned>(below(8 * A::kBytes + 1));
    return {prefix_of(any_address(), bits), bits};
  }
  std::vector<Prefix<A>> some_prefixes(unsigned most) {
    std::vector<Prefix<A>> all;
    for (auto left = below(most + 1); left > 0; --left) all.push_back(any_prefix());
    return all;
  }
  std::vector<Range> some_ranges() {
    std::vector<Range> all;
    for (auto left = below(4); left > 0; --left) {
      std::array<std::uint16_t, 2> ends{any_port(), any_port()};
      std::ranges::sort(ends);
      all.push_back({ends[0], ends[1]});
    }
    return all;
  }
  std::uint16_t any_port() {
    constexpr std::array<std::uint16_t, 8> kPorts{0, 1, 22, 80, 81, 1023, 1024, 65535};
    return kPorts[below(kPorts.size())];
  }
  std::uint8_t any_protocol() { return std::array<std::uint8_t, 4>{1, 6, 17, 47}[below(4)]; }
  std::uint64_t any_zones() { return one_in(2) ? ~std::uint64_t{0} : random(); }
  AddressMatch<A> any_match(unsigned sets) {
    AddressMatch<A> match{.any = one_in(4), .prefixes = {}, .sets = {}};
    if (match.any) return match;
    match.prefixes = some_prefixes(3);
    if (sets > 0 && one_in(3)) match.sets.push_back(static_cast<std::uint16_t>(below(sets)));
    return match;
  }
  RuleMatch<A> any_rule(unsigned sets) {
    RuleMatch<A> rule{.from = any_zones(),
                      .to = any_zones(),
                      .protocols = {},
                      .source = any_match(sets),
                      .destination = any_match(sets),
                      .source_ports = one_in(2) ? std::vector<Range>() : some_ranges(),
                      .destination_ports = one_in(3) ? std::vector<Range>() : some_ranges()};
    for (auto left = below(3); left > 0; --left) rule.protocols.push_back(any_protocol());
    return rule;
  }
  PacketFields<A> any_packet() {
    return {.source = any_address(),
            .destination = any_address(),
            .source_port = any_port(),
            .destination_port = any_port(),
            .protocol = any_protocol(),
            .from = static_cast<std::uint8_t>(below(kMostZones)),
            .to = static_cast<std::uint8_t>(below(kMostZones))};
  }

  std::mt19937_64 random{test::seed()};
};
using AddressFamilies = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(ClassifierTest, AddressFamilies);

TYPED_TEST(ClassifierTest, MatchesNothingWithoutRules) {
  const Classifier<TypeParam> classifier;
  EXPECT_EQ(classifier.find(this->any_packet(), {}), classifier.kNone);
}

// More rules than a summary covers (4,096) in the last round.
TYPED_TEST(ClassifierTest, FindsTheRuleThatALinearSearchFinds) {
  SCOPED_TRACE(test::repeat());
  for (const unsigned count : {1U, 2U, 10U, 64U, 65U, 200U, 5000U}) {
    for (unsigned round = 0; round < (count < 1000 ? 30U : 1U); ++round) {
      const auto set_count = static_cast<unsigned>(this->below(5));
      typename TestFixture::Sets sets;
      while (sets.size() < set_count) sets.push_back(this->some_prefixes(6));
      typename TestFixture::Rules rules;
      while (rules.size() < count) rules.push_back(this->any_rule(set_count));
      const Classifier<TypeParam> classifier(rules);
      const AddressSets<TypeParam> address_sets(sets);
      for (int n = 0; n < 500; ++n) {
        const auto packet = this->any_packet();
        ASSERT_EQ(classifier.find(packet, address_sets), find_linearly(rules, sets, packet));
      }
    }
  }
}

// The longest prefix around an address, each wider one and each set count.
TYPED_TEST(ClassifierTest, FindsRulesByEachPrefixAroundAnAddress) {
  typename TestFixture::Rules rules;
  typename TestFixture::Sets sets(kMostSets);
  for (unsigned bits = 0; bits <= 8 * TypeParam::kBytes; ++bits) {
    rules.push_back({.source = {.any = false, .prefixes = {{TypeParam{}, bits}}}});
    for (auto& set : sets) set.push_back({TypeParam{}, bits});
  }
  for (std::uint16_t set = 0; set < kMostSets; ++set)
    rules.push_back({.source = {.any = false, .sets = {set}}});
  const AddressSets<TypeParam> address_sets(sets);
  for (std::uint32_t first = 0; first < rules.size(); ++first) {
    const Classifier<TypeParam> classifier(rules);
    ASSERT_EQ(classifier.find({.protocol = 17}, address_sets), first);
    rules[first].protocols = {6};
  }
}

}  // namespace
}  // namespace millrace
