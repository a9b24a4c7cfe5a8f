#include "bench/advise_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::bench {
namespace {

constexpr unsigned kFinal = kRounds + 1;

Tried tried(const Combination& combination, double median, double mostly, unsigned round = kFinal) {
  return {.combination = combination,
          .round = round,
          .ns_per_packet = {median, median, mostly},
          .mostly = mostly};
}

Advice advice_of(std::vector<Tried> all, unsigned workers) {
  Advice advice;
  advice.tried = std::move(all);
  recommend(advice, workers);
  return advice;
}

const Combination kUsual = usual(1, false);
const Combination kOther{"chained", "sharded", "lazy"};

TEST(AdviceChoice, TheUsualOnesAreThoseOfAnEmptyConfiguration) {
  EXPECT_EQ(kUsual, (Combination{"race", "sharded", "wheel"}));
  EXPECT_EQ(usual(2, false), kUsual);
  EXPECT_EQ(usual(2, true), (Combination{"race", "lock-free-race", "wheel"}));
  EXPECT_EQ(usual(1, true), kUsual) << "a single worker shares nothing";
}

TEST(AdviceChoice, WhatIsFasterThanTurnsDifferIsRecommended) {
  const Advice advice = advice_of({tried(kOther, 100, 104), tried(kUsual, 105, 109)}, 1);
  EXPECT_EQ(advice.best().combination, kOther);
  EXPECT_FALSE(advice.no_faster);
  EXPECT_FALSE(advice.shared);
}

TEST(AdviceChoice, ElseTheUsualOne) {
  const Advice advice =
      advice_of({tried(kOther, 100, 104), tried({"std", "sharded", "scan"}, 101, 102),
                 tried(kUsual, 103, 109)},
                1);
  EXPECT_EQ(advice.best().combination, kUsual);
  EXPECT_EQ(advice.no_faster, kOther);
  EXPECT_EQ(advice.tried[1].combination, kOther) << "the other combinations stay in order";
}

TEST(AdviceChoice, FewTurnsTellOnlyWhatIsOutOfItsRound) {
  EXPECT_EQ(
      advice_of({tried(kOther, 100, 100, 1), tried(kUsual, 159, 159, 1)}, 1).best().combination,
      kUsual);
  EXPECT_EQ(
      advice_of({tried(kOther, 100, 100, 3), tried(kUsual, 116, 116, 3)}, 1).best().combination,
      kOther);
}

TEST(AdviceChoice, WhatFailedOrWasOutEarlierIsNotRecommended) {
  EXPECT_EQ(advice_of({tried(kOther, 100, 104), tried(kUsual, 100, 104, 2)}, 1).best().combination,
            kOther);
  Tried failed = tried(kUsual, 0, 0, 1);
  failed.failed = "no memory";
  EXPECT_EQ(advice_of({tried(kOther, 100, 104, 1), failed}, 1).best().combination, kOther);
}

TEST(AdviceChoice, SharedTablesAreChosenAmongThemselves) {
  const Combination locked{"chained", "spinlock", "lazy"};
  const auto all = [&locked](double usual_ns) {
    return std::vector<Tried>{tried(kOther, 100, 104), tried(kUsual, 120, 124),
                              tried(locked, 150, 154), tried(usual(2, true), usual_ns, 170)};
  };
  EXPECT_EQ(advice_of(all(153), 2).shared->combination, usual(2, true));
  EXPECT_EQ(advice_of(all(155), 2).shared->combination, locked);
  EXPECT_EQ(advice_of(all(153), 2).best().combination, kOther);
}

}  // namespace
}  // namespace millrace::bench
