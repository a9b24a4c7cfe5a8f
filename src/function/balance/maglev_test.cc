#include "function/balance/maglev.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/test_sanitizers.h"

namespace millrace {
namespace {

const Hasher& hasher() {
  static const Hasher hash = balance_hasher(kDefaultBalanceKey);
  return hash;
}

AddressV4 host(std::size_t i) {
  return {{10, static_cast<std::uint8_t>(i >> 16), static_cast<std::uint8_t>(i >> 8),
           static_cast<std::uint8_t>(i)}};
}

std::vector<Maglev::Member> pool(std::size_t n) {
  std::vector<Maglev::Member> members;
  for (std::size_t i = 0; i < n; ++i)
    members.push_back(Maglev::member(hasher(), host(i + 1), 0, 1));
  return members;
}

std::vector<std::size_t> shares(const Maglev& maglev, std::size_t members) {
  std::vector<std::size_t> counts(members);
  for (const std::uint16_t entry : maglev.entries()) ++counts[entry];
  return counts;
}

// Section 3.4 of the paper: with equal weights, shares differ by at most one entry.
TEST(Maglev, EqualWeightsGetEqualShares) {
  for (const std::size_t n : {1U, 2U, 3U, 10U, 655U, 1000U}) {
    const auto counts = shares(Maglev::build(pool(n)), n);
    const auto [least, most] = std::ranges::minmax_element(counts);
    EXPECT_LE(*most - *least, 1U) << n << " backends";
  }
}

TEST(Maglev, SharesFollowWeights) {
  auto members = pool(10);
  double sum = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].weight = static_cast<std::uint32_t>(i);
    sum += static_cast<double>(i);
  }
  const auto counts = shares(Maglev::build(members), members.size());
  EXPECT_EQ(counts[0], 0U);
  for (std::size_t i = 1; i < members.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(counts[i]), 65537.0 * static_cast<double>(i) / sum, 2.0) << i;
  }
}

// Returns the share of entries whose backend changes although neither the old nor the new backend
// is in `gone`.
double disruption(const Maglev& before, const Maglev& after, const std::set<std::uint16_t>& gone) {
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.entries().size(); ++i) {
    const bool excused = gone.contains(before.entries()[i]) || gone.contains(after.entries()[i]);
    if (!excused && before.entries()[i] != after.entries()[i]) ++moved;
  }
  return static_cast<double>(moved) / static_cast<double>(before.entries().size());
}

Maglev without(std::vector<Maglev::Member> members, const std::set<std::uint16_t>& gone) {
  for (const std::uint16_t i : gone) members[i].weight = 0;
  return Maglev::build(members);
}

// Section 5.3 and figure 12 of the paper: `failed` of `backends` fail, with 65537 entries. The
// fewer backends fail, the fewer entries of the remaining backends change. Adding backends is the
// reverse of removing them. The bounds are two to six times the worst trials in docs/balance.md, so
// that the test fails if the table gets worse.
TEST(Maglev, FewEntriesMoveBesidesThoseThatMust) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  struct Case {
    std::size_t backends, failed;
    double bound;
  };
  for (const auto& [backends, failed, bound] :
       {Case{10, 1, 0.02}, Case{100, 1, 0.02}, Case{1000, 1, 0.02}, Case{1000, 10, 0.05},
        Case{1000, 50, 0.15}}) {
    const auto members = pool(backends);
    const Maglev before = Maglev::build(members);
    double sum = 0;
    double worst = 0;
    constexpr std::size_t kTrials = 10;
    for (std::size_t trial = 0; trial < kTrials; ++trial) {
      std::set<std::uint16_t> gone;
      for (std::size_t i = 0; i < failed; ++i) {
        gone.insert(static_cast<std::uint16_t>((trial * backends / kTrials + i * 7) % backends));
      }
      const double moved = disruption(before, without(members, gone), gone);
      sum += moved;
      worst = std::max(worst, moved);
    }
    RecordProperty("disruption_" + std::to_string(backends) + "_" + std::to_string(failed),
                   std::to_string(sum / kTrials) + " worst " + std::to_string(worst));
    EXPECT_LE(worst, bound) << failed << " of " << backends << " failed";
    EXPECT_GT(sum, 0.0) << "nothing ever moves: is the measure right?";
  }
}

TEST(Maglev, TheOrderOfTheListDoesNotMatter) {
  auto members = pool(7);
  members[3].weight = 5;
  const Maglev straight = Maglev::build(members);
  std::ranges::reverse(members);
  const Maglev reversed = Maglev::build(members);
  for (std::size_t i = 0; i < straight.entries().size(); ++i) {
    ASSERT_EQ(straight.entries()[i], 6 - reversed.entries()[i]);
  }
}

TEST(Maglev, KeyAndPortMatter) {
  BalanceKey other = kDefaultBalanceKey;
  other.back() ^= 1;
  KeyV4 key;
  EXPECT_NE(balance_hasher(other)(key), hasher()(key));
  other = kDefaultBalanceKey;
  other.front() ^= 1;
  EXPECT_NE(balance_hasher(other)(key), hasher()(key));
  EXPECT_NE(Maglev::member(hasher(), host(1), 80, 1), Maglev::member(hasher(), host(1), 81, 1));
}

// Entries are compared with fixed values, since machines with different versions must agree. A
// change of these values moves users' connections.
TEST(Maglev, SameOnEveryMachine) {
  const Maglev maglev = Maglev::build(pool(10));
  std::uint64_t digest = 0;
  for (const std::uint16_t entry : maglev.entries()) digest = digest * 31 + entry;
  EXPECT_EQ(digest, 11235690639979267903U);
  AddressV6 address;
  address.bytes = {0xfd};
  EXPECT_EQ(Maglev::member(hasher(), address, 80, 1).skip, 15574956939767872593U);
}

TEST(Maglev, SmallTablesAndPoolsAsLargeAsTheTable) {
  for (const std::uint32_t size : {2U, 3U, 7U, 251U}) {
    for (std::size_t n = 1; n <= size; ++n) {
      const auto counts = shares(Maglev::build(pool(n), size), n);
      EXPECT_GE(*std::ranges::min_element(counts), 1U);
    }
  }
  EXPECT_EQ(Maglev::build(pool(3), 7).pick(UINT64_MAX), Maglev::build(pool(3), 7).entries()[6]);
}

TEST(Maglev, PrimesAreKnown) {
  EXPECT_TRUE(is_prime(2) && is_prime(3) && is_prime(65537) && is_prime(Maglev::kMaxSize));
  EXPECT_FALSE(is_prime(0) || is_prime(1) || is_prime(65536) || is_prime(65535));
}

}  // namespace
}  // namespace millrace
