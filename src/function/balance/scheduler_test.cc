#include "function/balance/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace millrace {
namespace {

/// The backends of a service, and its scheduler.
struct Fixture {
  explicit Fixture(const std::string& name, const std::vector<std::uint32_t>& weights)
      : activity(weights.size()) {
    std::vector<Maglev::Member> members;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      candidates.push_back({weights[i], &activity[i]});
      members.push_back({.offset = i * 7919, .skip = i * 104729 + 1, .weight = weights[i]});
    }
    maglev = tables.of(members);
    scheduler = create(name);
  }

  std::unique_ptr<Scheduler> create(const std::string& name) {
    return scheduler_named(name)->create({candidates, maglev, tables});
  }

  /// Counts a proved connection of the backend at that place.
  void begins(std::size_t place) {
    activity[place].active.add(1);
    activity[place].proved.add(1);
  }

  std::string picks(std::size_t n) {
    std::string places;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint16_t place = scheduler->pick(i * 0x9e3779b97f4a7c15);
      begins(place);
      places += static_cast<char>('a' + place);
    }
    return places;
  }

  std::vector<Activity> activity;
  std::vector<Candidate> candidates;
  MaglevTables tables{Maglev::kDefaultSize, 0};
  std::shared_ptr<MaglevTable> maglev;
  std::unique_ptr<Scheduler> scheduler;
};

TEST(Schedulers, EachKeepsToBackendsWithWeight) {
  for (const SchedulerKind& kind : schedulers()) {
    Fixture fixture(std::string(kind.name), {0, 2, 0, 1, 0});
    const std::string picks = fixture.picks(300);
    EXPECT_EQ(picks.find_first_not_of("bd"), picks.npos) << kind.name;
    EXPECT_NE(picks.find('b'), picks.npos) << kind.name;
    EXPECT_NE(picks.find('d'), picks.npos) << kind.name;
  }
}

TEST(Schedulers, EachServesASingleBackend) {
  for (const SchedulerKind& kind : schedulers()) {
    EXPECT_EQ(Fixture(std::string(kind.name), {1}).picks(4), "aaaa") << kind.name;
  }
}

TEST(Schedulers, UnknownNamesAreNull) { EXPECT_EQ(scheduler_named("round robin"), nullptr); }

TEST(RoundRobin, TakesTurns) {
  EXPECT_EQ(Fixture("round-robin", {5, 0, 1, 1}).picks(7), "acdacda");
}

TEST(WeightedRoundRobin, Interleaves) {
  EXPECT_EQ(Fixture("weighted-round-robin", {5, 1, 1}).picks(14), "aaabcaaaaabcaa");
  EXPECT_EQ(Fixture("weighted-round-robin", {1, 1, 1}).picks(6), "abcabc");
}

TEST(WeightedRoundRobin, IsExactOverEachRun) {
  const std::vector<std::uint32_t> weights{7, 0, 3, 11, 1, 65535};
  Fixture fixture("weighted-round-robin", weights);
  for (int run = 0; run < 2; ++run) {
    std::vector<std::uint32_t> picked(weights.size());
    for (int i = 0; i < 7 + 3 + 11 + 1 + 65535; ++i) ++picked[fixture.scheduler->pick(0)];
    EXPECT_EQ(picked, weights);
  }
}

TEST(HashScheduler, FollowsHashAndWeights) {
  Fixture fixture("hash", {1, 0, 3});
  std::array<int, 3> counts{};
  for (Hash hash = 0; hash < 4000; ++hash) ++counts[fixture.scheduler->pick(hash)];
  EXPECT_EQ(counts, (std::array{1000, 0, 3000}));
  EXPECT_EQ(fixture.scheduler->pick(42), fixture.scheduler->pick(42));
}

TEST(LeastConnections, FillsTheEmptiestForItsWeight) {
  Fixture fixture("least-connections", {1, 2, 1});
  fixture.activity[0].active.add(3);
  fixture.activity[1].active.add(3);
  fixture.activity[2].active.add(3);
  EXPECT_EQ(fixture.picks(1), "b");
  fixture.activity[1].active.add(10);
  fixture.activity[2].active.subtract(2);
  EXPECT_EQ(fixture.picks(1), "c");
}

TEST(LeastConnections, TakesTurnsAmongEquals) {
  Fixture fixture("least-connections", {1, 1, 1});
  for (const int place : {0, 1, 2, 0}) EXPECT_EQ(fixture.scheduler->pick(0), place);
}

/// A flood of connections that are never proved: none is active.
TEST(LeastConnections, AFloodWeighsNoMoreThanItsLatestPicks) {
  Fixture fixture("least-connections", {1, 1});
  for (int i = 0; i < 1001; ++i) fixture.scheduler->pick(0);
  fixture.activity[1].active.add(100);
  for (int i = 0; i < 67; ++i) EXPECT_EQ(fixture.scheduler->pick(0), 0) << i;
}

TEST(LeastConnections, WhatHasEndedAndWhatNobodyAnswersWeighLittle) {
  Fixture fixture("least-connections", {1, 1});
  for (int i = 0; i < 4; ++i) fixture.begins(fixture.scheduler->pick(0));
  fixture.activity[0].active.subtract(2);  // both connections of backend a have ended
  EXPECT_EQ(fixture.picks(2), "aa");
  for (int i = 0; i < 20; ++i) fixture.scheduler->pick(0);
  for (int i = 0; i < 3; ++i) fixture.begins(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fixture.scheduler->pick(0), 0) << i;
}

TEST(LeastConnections, ANewBackendGetsTwiceTheShareOfOthersAtMost) {
  for (const bool is_answered : {true, false}) {
    Fixture before("least-connections", {1, 1, 2, 1});
    for (const unsigned place : {0U, 1U}) before.activity[place].active.add(100);
    before.activity[2].active.add(200);
    const auto scheduler = before.create("least-connections");
    std::array<int, 4> picked{};
    for (int i = 0; i < 60; ++i) {
      const std::uint16_t place = scheduler->pick(0);
      ++picked[place];
      if (is_answered) before.begins(place);
    }
    EXPECT_GT(picked[3], picked[0]) << is_answered;
    EXPECT_LE(picked[3], 2 * picked[0] + 1) << is_answered;
    EXPECT_NEAR(picked[0], picked[1], 1) << is_answered;
    EXPECT_NEAR(picked[0] + picked[1], picked[2], 3) << is_answered;
  }
}

TEST(LeastConnections, BackendsBecomeEvenAgain) {
  Fixture before("least-connections", {1, 1, 1});
  for (const unsigned place : {0U, 1U}) before.activity[place].active.add(100);
  const auto scheduler = before.create("least-connections");
  for (int i = 0; i < 2000; ++i) before.begins(scheduler->pick(0));
  for (const Activity& one : before.activity)
    EXPECT_NEAR(static_cast<double>(one.active.value()), 2200.0 / 3, 1);
}

TEST(MaglevScheduler, IsTheServicesTable) {
  Fixture fixture("maglev", {1, 1, 1});
  for (Hash hash = 1; hash != 0; hash <<= 1) {
    EXPECT_EQ(fixture.scheduler->pick(hash), fixture.maglev->made()->pick(hash));
  }
}

}  // namespace
}  // namespace millrace
