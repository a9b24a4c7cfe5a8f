#include "simulated_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace millrace::bench {
namespace {

TEST(Imbalance, OfBusiestAndIdlest) {
  EXPECT_EQ(imbalance_percent(std::vector<double>{10, 15, 12}), 50);
  EXPECT_EQ(imbalance_percent(std::vector<double>{7, 7}), 0);
  EXPECT_EQ(imbalance_percent(std::vector<double>{0, 5, 10, 0}), 100)
      << "idle workers do not count";
  EXPECT_EQ(imbalance_percent(std::vector<double>{1, 1000}), 2000) << "the result is 2000 at most";
  EXPECT_EQ(imbalance_percent(std::vector<double>{0, 3}), 0);
  EXPECT_EQ(imbalance_percent(std::vector<double>{}), 0);
}

TEST(LoadAt, GrowsStaysAndFalls) {
  EXPECT_DOUBLE_EQ(load_at(0), 0.1);
  EXPECT_DOUBLE_EQ(load_at(15), 1);
  EXPECT_DOUBLE_EQ(load_at(30), 1);
  EXPECT_NEAR(load_at(60), 0.1, 1e-9);
  EXPECT_NEAR(load_at(100), 0.1, 1e-9);
  EXPECT_LT(load_at(5), load_at(10));
  EXPECT_GT(load_at(40), load_at(50));
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(SimulatedWorkers, ShardsStayWhereNothingLevels) {
  SimulatedWorkers workers({.workers = 2, .shards = 128});
  std::vector<double> packets(128, 100);
  packets[0] = packets[2] = 6'000;
  for (int n = 0; n < 3; ++n) {
    const auto step = workers.step(packets);
    EXPECT_EQ(step.loads, (std::vector<double>{18'200, 6'400}));
    EXPECT_EQ(step.moves, 0U);
    EXPECT_EQ(step.lost, 0);
    EXPECT_EQ(step.in_use, 2U);
  }
}

TEST(SimulatedWorkers, ADecisionTakesEffectInTheNextStep) {
  SimulatedWorkers workers({.workers = 2, .shards = 128, .levelling = Levelling::all});
  std::vector<double> packets(128, 100);
  packets[0] = packets[2] = 6'000;
  EXPECT_EQ(workers.step(packets).moves, 1U);
  EXPECT_EQ(workers.by_worker(packets), (std::vector<double>{18'200, 6'400}));
  EXPECT_EQ(workers.step(packets).loads, (std::vector<double>{12'200, 12'400}));
}

TEST(SimulatedWorkers, TheNextDecisionWaitsForTheLastMove) {
  SimulatedWorkers workers({.workers = 4,
                            .shards = 128,
                            .levelling = Levelling::as_needed,
                            .capacity = 100'000,
                            .moves_a_step = 10});
  const std::vector<double> packets(128, 500);  // 64,000 in all: enough for one worker
  unsigned moves = 0;
  unsigned steps = 0;
  for (auto step = workers.step(packets); step.in_use > 1; step = workers.step(packets)) {
    EXPECT_EQ(step.moves, std::min(10U, 96 - moves));
    moves += step.moves;
    ASSERT_LT(++steps, 100U);
  }
  EXPECT_EQ(moves, 96U) << "all shards of the three other workers";
}

TEST(SimulatedWorkers, MoreOfThemWhereTheLoadNeedsThem) {
  SimulatedWorkers workers({.workers = 4,
                            .shards = 128,
                            .levelling = Levelling::as_needed,
                            .capacity = 10'000,
                            .moves_a_step = 1000});
  const std::vector<double> few(128, 40);
  for (int n = 0; n < 20; ++n) workers.step(few);
  EXPECT_EQ(workers.step(few).in_use, 1U);
  const std::vector<double> many(128, 200);  // 25,600 in all
  const auto first = workers.step(many);
  EXPECT_EQ(first.lost, 15'600);
  EXPECT_EQ(sum_of(first.loads), 25'600);
  for (int n = 0; n < 20; ++n) workers.step(many);
  const auto last = workers.step(many);
  EXPECT_EQ(last.in_use, 4U) << "three workers were busy for more than 0.8 of the time";
  EXPECT_EQ(last.lost, 0);
}

}  // namespace
}  // namespace millrace::bench
