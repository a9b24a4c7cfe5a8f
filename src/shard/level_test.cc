#include "shard/level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace millrace {
namespace {

double mean_of(const std::vector<double>& loads) {
  return std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
}

Indirection after(Indirection indirection, const std::vector<Move>& moves) {
  for (const Move& move : moves) indirection.give(move.shard, move.to);
  return indirection;
}

TEST(Level, LeavesAloneWhatIsLevel) {
  const Indirection indirection(128, 4);
  EXPECT_TRUE(level(indirection, std::vector(128, 1.0), 4).empty());
  EXPECT_TRUE(level(indirection, std::vector(128, 0.0), 4).empty());
  std::vector load(128, 100.0);
  load[0] += 100;  // 3 % above the mean
  EXPECT_TRUE(level(indirection, load, 4).empty());
  EXPECT_TRUE(level(Indirection(128, 1), load, 1).empty());
}

TEST(Level, OneHeavyShardOfTwoMoves) {
  std::vector load(128, 1.0);
  load[0] = load[2] = 200;
  const auto moves = level(Indirection(128, 2), load, 2);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_TRUE(moves[0].shard == 0 || moves[0].shard == 2);
  EXPECT_EQ(moves[0].from, 0U);
  EXPECT_EQ(moves[0].to, 1U);
}

TEST(Level, WhatOneEntryHasTooMuchOfStaysAndAllElseLeaves) {
  std::vector load(128, 1.0);
  load[0] = 1000;
  const Indirection indirection(128, 4);
  const auto levelled = after(indirection, level(indirection, load, 4));
  EXPECT_EQ(levelled.worker_of(0), 0U);
  const auto loads = loads_of(levelled, load, 4);
  EXPECT_EQ(loads[0], 1000);
  // The others are as level as shards of one allow.
  EXPECT_LE(std::ranges::max(std::span(loads).subspan(1)),
            std::ranges::min(std::span(loads).subspan(1)) + 2);
}

TEST(Level, NeverMakesItWorseAndEndsLevelWhereItCan) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 500; ++trial) {
    const auto workers = static_cast<unsigned>(1 + random() % 16);
    const unsigned shards = 128U << random() % 3;
    Indirection indirection(shards, workers);
    for (unsigned shard = 0; shard < shards; ++shard)
      indirection.give(shard, static_cast<unsigned>(random()) % workers);
    std::vector<double> load(shards);
    for (auto& of_shard : load) {
      // Between even and very uneven.
      of_shard = static_cast<double>(random() % 100) * (random() % 8 == 0 ? 20 : 1);
    }
    const auto before = loads_of(indirection, load, workers);
    const auto moves = level(indirection, load, workers);
    const auto loads = loads_of(after(indirection, moves), load, workers);
    EXPECT_LE(std::ranges::max(loads), std::ranges::max(before));
    EXPECT_LE(std::ranges::max(loads), 1.1 * mean_of(before) + std::ranges::max(load));
    std::set<unsigned> moved;
    std::set<unsigned> givers;
    std::set<unsigned> takers;
    for (const Move& move : moves) {
      EXPECT_EQ(indirection.worker_of(move.shard), move.from);
      EXPECT_TRUE(moved.insert(move.shard).second);
      givers.insert(move.from);
      takers.insert(move.to);
    }
    for (const unsigned giver : givers) EXPECT_FALSE(takers.contains(giver));
  }
}

TEST(Leveller, DecidesByWhatHasComeSince) {
  const Indirection indirection(128, 2);
  Leveller leveller(2);
  std::vector<std::uint64_t> packets(128, 100);
  EXPECT_TRUE(leveller.decide(indirection, packets).empty());
  packets[0] += 6'000;
  EXPECT_TRUE(leveller.decide(indirection, packets).empty()) << "too few to tell";
  packets[2] += 6'000;
  const auto moves = leveller.decide(indirection, packets);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves.front().from, 0U);
  for (auto& one : packets) one += 100;
  EXPECT_TRUE(leveller.decide(indirection, packets).empty()) << "it has decided about these";
}

}  // namespace
}  // namespace millrace
