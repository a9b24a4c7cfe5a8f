#include "port/capture_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {
namespace {

constexpr std::uint64_t kSecond = CaptureClock::kSecond;
constexpr std::uint64_t kDay = 86'400;

CaptureClock clock_of(const std::vector<std::uint64_t>& seconds) {
  CaptureClock clock;
  for (const std::uint64_t s : seconds) clock.add(s * kSecond);
  return clock;
}

/// Returns the clock's time at each packet, in seconds. Expects the last packet's time to be the
/// clock's latest.
std::vector<std::uint64_t> told(const std::vector<std::uint64_t>& seconds) {
  const CaptureClock clock = clock_of(seconds);
  std::vector<std::uint64_t> all;
  std::uint64_t now = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    now = std::max(now, clock.time_ns(i, seconds[i] * kSecond));
    all.push_back(now / kSecond);
  }
  EXPECT_EQ(now, clock.latest_ns());
  return all;
}

using Times = std::vector<std::uint64_t>;

TEST(CaptureClock, IsWhatTimestampsSay) {
  EXPECT_EQ(told({5, 5, 7, 9}), (Times{5, 5, 7, 9}));
  EXPECT_TRUE(clock_of({5, 5, 7, 9}).is_plain());
  EXPECT_EQ(clock_of({5, 5, 7, 9}).steps(), "");
  EXPECT_TRUE(CaptureClock().is_plain());
  EXPECT_EQ(CaptureClock().latest_ns(), 0U);
}

// Tests rule 2 of capture_clock.h.
TEST(CaptureClock, GoesOnASecondAfterAStepBack) {
  EXPECT_EQ(told({100, 101, 50, 51, 52, 60}), (Times{100, 101, 101, 101, 102, 110}));
  // Two steps back in a row.
  EXPECT_EQ(told({100, 50, 51, 53, 10, 11, 12}), (Times{100, 100, 100, 102, 102, 102, 103}));
}

TEST(CaptureClock, StaysUntilTheClockHasCaughtUp) {
  // Two sources, one of them late by 5 s: time follows the source that is not late.
  EXPECT_EQ(told({100, 95, 101, 96, 102, 97, 103}), (Times{100, 100, 101, 101, 102, 102, 103}));
  EXPECT_TRUE(clock_of({100, 95, 101, 96, 102, 97, 103}).is_plain());
  EXPECT_EQ(told({100, 0, 101}), (Times{100, 100, 101}));
}

// Tests rule 1: packets out of order by less than a second, any number of them.
TEST(CaptureClock, StaysForPacketsOutOfOrder) {
  CaptureClock clock;
  for (std::uint64_t i = 1; i < 1000; ++i)
    clock.add((i + 10) * kSecond / 100 - (i % 2 == 0 ? 0 : kSecond / 20));
  EXPECT_TRUE(clock.is_plain());
  EXPECT_EQ(clock.steps(), "");
}

// Tests rule 3.
TEST(CaptureClock, PassesWhatItStepsAhead) {
  EXPECT_EQ(told({100, 100 + 9 * kDay, 101 + 9 * kDay, 105 + 9 * kDay}),
            (Times{100, 100 + 9 * kDay, 101 + 9 * kDay, 105 + 9 * kDay}));
  EXPECT_TRUE(clock_of({0, 1'700'000'000, 1'700'000'003}).is_plain());
}

TEST(CaptureClock, ForgetsAStepAheadThatIsTakenBack) {
  EXPECT_EQ(told({100, 4'000'000'000, 101, 102}), (Times{100, 100, 101, 102}));
  // Two packets after the step, then the clock is taken back.
  EXPECT_EQ(told({100, 4'000'000'000, 4'000'000'001, 101, 102, 110}),
            (Times{100, 100, 101, 101, 102, 110}));
  // Taken back too late: these are two steps, one ahead and one back.
  EXPECT_EQ(
      told({100, 100 + 2 * kDay, 103 + 2 * kDay, 104, 105, 107}),
      (Times{100, 100 + 2 * kDay, 103 + 2 * kDay, 103 + 2 * kDay, 103 + 2 * kDay, 105 + 2 * kDay}));
  // Less than half is taken back: this is a step of its own.
  EXPECT_EQ(told({100, 100 + 10 * kDay, 100 + 8 * kDay, 102 + 8 * kDay}),
            (Times{100, 100 + 10 * kDay, 100 + 10 * kDay, 100 + 10 * kDay}));
}

TEST(CaptureClock, StaysWithin64Bits) {
  CaptureClock clock;
  const std::uint64_t late = CaptureClock::kLatest;
  for (int i = 0; i < 100; ++i) {
    for (const std::uint64_t at :
         {std::uint64_t{0}, kSecond, 2 * kSecond, late - 3 * kSecond, late})
      clock.add(at);
  }
  EXPECT_EQ(clock.latest_ns(), late);
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_LE(clock.time_ns(i, 0), late);
    EXPECT_LE(clock.time_ns(i, late), late);
    EXPECT_GT(clock.alike_until(i), i);
    static_cast<void>(clock.timestamp_ns(i, UINT64_MAX));
  }
}

TEST(CaptureClock, KnowsTheTimestampOfATime) {
  const Times seconds{100, 101, 50, 51, 52, 60, 4'000'000'000, 61};
  const CaptureClock clock = clock_of(seconds);
  EXPECT_FALSE(clock.is_plain());
  for (std::size_t i = 0; i < seconds.size(); ++i)
    EXPECT_EQ(clock.timestamp_ns(i, clock.time_ns(i, seconds[i] * kSecond)), seconds[i] * kSecond);
  // Timestamps convert back and forth as long as the same shift holds.
  EXPECT_EQ(clock.alike_until(0), 3U);
  EXPECT_EQ(clock.alike_until(3), 6U);
  EXPECT_EQ(clock.alike_until(6), 7U);
  EXPECT_EQ(clock.alike_until(7), SIZE_MAX);
}

TEST(CaptureClock, TellsTheFirstStepAndHowManyThereAre) {
  EXPECT_EQ(clock_of({100, 101, 50, 51}).steps(),
            "the clock steps back by 51.000000 s at packet 3");
  EXPECT_EQ(clock_of({100, 100 + kDay}).steps(),
            "the clock steps ahead by 86400.000000 s at packet 2");
  EXPECT_EQ(clock_of({100, 99 + kDay}).steps(), "");
  EXPECT_EQ(
      clock_of({100, 0, 101, 0, 102}).steps(),
      "the clock steps back by 100.000000 s at packet 2, the first of 2 steps (2 back, 0 ahead)");
  CaptureClock clock;
  clock.add(kSecond);
  clock.add(kSecond - kSecond / 10 + 1);
  EXPECT_EQ(clock.steps(), "");
  clock.add(kSecond - 2 * kSecond / 10);
  EXPECT_EQ(clock.steps(), "the clock steps back by 0.100000 s at packet 3");
}

}  // namespace
}  // namespace millrace
