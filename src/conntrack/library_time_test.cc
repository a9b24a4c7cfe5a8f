// Tests of what millrace/tracker.h says about time that goes back, and about ticks that wrap.
#include <gtest/gtest.h>

#include <utility>

#include "conntrack/test_support.h"
#include "millrace/tracker.h"

namespace millrace {
namespace {

constexpr std::uint32_t kTimeoutMs = 1000;
constexpr std::uint32_t kIntervalMs = 10;

class TimeTest : public testing::Test {
 public:
  /// Finds a connection, or opens it.
  ConnId track(std::uint64_t n, Tick now) {
    const KeyV4 key = test::nth_key<KeyV4>(n);
    ConnId id{};
    tracker.track({&key, 1}, now, {&id, 1});
    return id;
  }
  /// Sweeps until nothing is left to do at that tick; returns the number of live connections.
  std::size_t left_at(Tick now) {
    unsigned sweeps = 1;
    while (!tracker.sweep(now) && sweeps < 100'000) ++sweeps;
    EXPECT_LT(sweeps, 100'000U) << "no sweep returned true";
    return tracker.size();
  }
  ConnectionTracker<KeyV4> tracker = std::move(*ConnectionTracker<KeyV4>::create(
      {.capacity = 100, .timeout_ms = kTimeoutMs, .interval_ms = kIntervalMs, .seed = 1}));
};

TEST_F(TimeTest, TicksWrap) {
  EXPECT_EQ(Tick::from_ms(0x1'0000'0005), Tick{5});
  EXPECT_EQ(Tick::from_ms(0x1'0000'0005) - Tick::from_ms(0xffff'fffb), 10);
  track(1, Tick::from_ms(0xffff'ff00));
  EXPECT_EQ(left_at(Tick::from_ms(0x1'0000'0100)), 1U);
  EXPECT_EQ(left_at(Tick::from_ms(0x1'0000'0400)), 0U);
}

TEST_F(TimeTest, NothingEndsWhileTicksAreBeforeTheLatestOne) {
  track(1, Tick{10'000});
  EXPECT_EQ(left_at(Tick{10'000}), 1U);
  track(2, Tick{4000});  // the clock has gone back by 6 s
  EXPECT_EQ(left_at(Tick{5000 + kIntervalMs}), 2U) << "a connection idle for its timeout stays";
  EXPECT_EQ(left_at(Tick{9000}), 2U);
  EXPECT_EQ(left_at(Tick{10'000 + kIntervalMs}), 1U) << "connection 2 ends 6 s late at most";
  EXPECT_EQ(left_at(Tick{11'000 + kIntervalMs}), 0U);
}

TEST_F(TimeTest, AnEarlierTickEndsWhatIsDueAtTheLatestOne) {
  for (std::uint64_t n = 0; n < 50; ++n) track(n, Tick{0});
  EXPECT_FALSE(tracker.sweep(Tick{5000}, 10)) << "more is due than the budget allows";
  EXPECT_GT(tracker.size(), 0U);
  EXPECT_EQ(left_at(Tick{0}), 0U);
}

TEST_F(TimeTest, WhatIsSeenAtAnEarlierTickCountsAsIdleSinceThen) {
  track(1, Tick{10'000});
  track(2, Tick{10'000});
  track(1, Tick{9500});
  EXPECT_EQ(tracker.last_seen(track(1, Tick{9500})), Tick{9500});
  EXPECT_EQ(left_at(Tick{10'500}), 2U);
  track(2, Tick{9400});  // a single earlier tick
  track(2, Tick{10'600});
  EXPECT_EQ(left_at(Tick{11'000 + kIntervalMs}), 1U) << "connection 1 has been idle since 9500";
  EXPECT_EQ(left_at(Tick{11'600 + kIntervalMs}), 0U);
}

TEST_F(TimeTest, MoreThanHalfTheRangeBackIsLater) {
  track(1, Tick{1000});
  const Tick before = Tick{1000} + 0x8000'0001;  // 2^31 - 1 ms earlier, as signed ticks have it
  EXPECT_EQ(before - Tick{1000}, -0x7fff'ffff);
  EXPECT_EQ(left_at(before), 1U);
  EXPECT_EQ(left_at(Tick{1000} + 0x7fff'ffff), 0U);
}

TEST_F(TimeTest, ATickThatWasFarTooLateKeepsIdleConnections) {
  track(1, Tick{1000});
  EXPECT_EQ(left_at(Tick{1'000'000}), 0U);
  track(2, Tick{2000});  // the clock is right again
  EXPECT_EQ(left_at(Tick{900'000}), 1U);
  EXPECT_EQ(left_at(Tick{1'000'000 + kIntervalMs}), 0U) << "the clock has caught up";
}

}  // namespace
}  // namespace millrace
