#include "shard/level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/test_seed.h"

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
  load[0] += 100;  // the first worker's load is 2.3 % above the mean
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
  // The other workers are as level as shards with a load of 1 allow.
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
      // Most shards have a small load, some a large one.
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

TEST(Level, OthersGiveAllTheyHave) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (unsigned repetition = 0; repetition < 100; ++repetition) {
    const auto workers = static_cast<unsigned>(1 + random() % 4);
    const bool has_load = random() % 4 != 0;
    const Indirection indirection(128, 6);
    std::vector<double> load(128);
    for (double& of_shard : load) of_shard = has_load ? static_cast<double>(random() % 100) : 0;
    const Indirection now = after(indirection, level(indirection, load, workers));
    std::vector<unsigned> shards(workers);
    for (unsigned shard = 0; shard < 128; ++shard) {
      ASSERT_LT(now.worker_of(shard), workers);
      ++shards[now.worker_of(shard)];
    }
    const auto loads = loads_of(now, load, workers);
    EXPECT_LE(std::ranges::max(loads), kUnlevel * mean_of(loads));
    if (!has_load) {
      EXPECT_LE(std::ranges::max(shards), 128 / workers + 22);
    }
  }
}

TEST(Level, NoWorkerGetsMoreShardsThanItMay) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (unsigned repetition = 0; repetition < 200; ++repetition) {
    const auto workers = static_cast<unsigned>(1 + random() % 8);
    const auto most = static_cast<unsigned>(random() % 128);
    Indirection indirection(128, 8);
    const auto crowd = static_cast<unsigned>(1 + random() % 8);
    for (unsigned shard = 0; shard < 128; ++shard)
      indirection.give(shard, static_cast<unsigned>(random() % crowd));
    std::vector<double> load(128);
    for (double& of_shard : load) of_shard = static_cast<double>(random() % 100);
    load[random() % 128] = 5000;
    const Indirection now = after(indirection, level(indirection, load, workers, most));
    std::vector<unsigned> shards(workers);
    for (unsigned shard = 0; shard < 128; ++shard) {
      ASSERT_LT(now.worker_of(shard), workers);
      ++shards[now.worker_of(shard)];
    }
    EXPECT_LE(std::ranges::max(shards), std::max(most, (128 + workers - 1) / workers));
  }
}

TEST(Level, ShardsLeaveAFullWorkerWithoutPackets) {
  Leveller leveller(4);
  const Indirection crowded(128, 1);
  const std::vector<std::uint64_t> packets(128);
  EXPECT_TRUE(leveller.decide(crowded, packets).empty());
  EXPECT_EQ(leveller.decide(crowded, packets, 64).size(), 64U);
  EXPECT_EQ(most_shards(128, 4, 0), 128U);
  EXPECT_EQ(most_shards(128, 4, 0.25), 102U);
  EXPECT_EQ(most_shards(128, 4, 1), 25U) << "below an even share, which each worker may have";
}

TEST(WorkersNeeded, AsManyAsConnectionsNeed) {
  const std::vector<double> idle(8);
  EXPECT_EQ(workers_needed(idle, 1, 0.1), 1U);
  EXPECT_EQ(workers_needed(idle, 1, 0.2), 2U);
  EXPECT_EQ(workers_needed(idle, 1, 0.5), 4U);
  EXPECT_EQ(workers_needed(idle, 8, 0.5), 5U)
      << "one more than needed, until fewer connections live";
  EXPECT_EQ(workers_needed(idle, 5, 0.5), 5U);
  EXPECT_EQ(workers_needed(idle, 1, 1), 8U);
}

TEST(WorkersNeeded, AsFewAsCanDoIt) {
  const auto needed = [](std::vector<double> busy, unsigned in_use) {
    return workers_needed(busy, in_use, 0);
  };
  EXPECT_EQ(needed({0, 0, 0, 0}, 4), 1U);
  EXPECT_EQ(needed({0, 0, 0, 0}, 1), 1U);
  EXPECT_EQ(needed({0.75, 0, 0, 0}, 1), 1U);
  EXPECT_EQ(needed({1, 0, 0, 0}, 1), 2U)
      << "a full worker may have more load than one more worker can take";
  EXPECT_EQ(needed({1, 1, 0, 0}, 2), 3U);
  EXPECT_EQ(needed({1, 1, 1, 0}, 3), 4U);
  EXPECT_EQ(needed({1, 1, 1, 1}, 4), 4U) << "there are only 4 workers";
  EXPECT_EQ(needed({0.3, 0.3, 0, 0}, 2), 2U) << "a single worker would soon be too busy";
  EXPECT_EQ(needed({0.2, 0.2, 0, 0}, 2), 1U);
  EXPECT_EQ(needed({0.1, 0.1, 0.1, 0.1}, 4), 1U);
  EXPECT_EQ(needed({}, 1), 1U);
}

// A constant load must not make the number of workers go up and down.
TEST(WorkersNeeded, ComesToRest) {
  constexpr unsigned kWorkers = 16;
  for (double load = 0; load <= kWorkers; load += 0.01) {
    for (unsigned first = 1; first <= kWorkers; ++first) {
      const auto next = [load](unsigned in_use) {
        std::vector<double> busy(kWorkers);
        std::fill_n(busy.begin(), in_use, std::min(load / in_use, 1.0));
        return workers_needed(busy, in_use, 0);
      };
      unsigned in_use = first;
      for (unsigned n = 0; n < 10; ++n) in_use = next(in_use);
      ASSERT_EQ(next(in_use), in_use) << load << " from " << first;
      ASSERT_TRUE(in_use == kWorkers || load <= kTooBusy * in_use + 1e-9) << load;
    }
  }
}

TEST(Leveller, GivesUpWorkersWithoutPackets) {
  const Indirection indirection(128, 2);
  Leveller leveller(2);
  const std::vector<std::uint64_t> packets(128, 0);
  EXPECT_TRUE(leveller.decide(indirection, packets).empty());
  leveller.use(1);
  EXPECT_EQ(leveller.decide(indirection, packets).size(), 64U);
}

TEST(Leveller, DecidesByWhatHasComeSince) {
  const Indirection indirection(128, 2);
  Leveller leveller(2);
  std::vector<std::uint64_t> packets(128, 100);
  EXPECT_TRUE(leveller.decide(indirection, packets).empty());
  packets[0] += 6'000;
  EXPECT_TRUE(leveller.decide(indirection, packets).empty()) << "too few packets to tell";
  packets[2] += 6'000;
  const auto moves = leveller.decide(indirection, packets);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves.front().from, 0U);
  for (auto& one : packets) one += 100;
  EXPECT_TRUE(leveller.decide(indirection, packets).empty())
      << "the earlier packets were decided about already";
}

}  // namespace
}  // namespace millrace
