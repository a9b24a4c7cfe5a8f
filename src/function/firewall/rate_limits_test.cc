#include "function/firewall/rate_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace millrace {
namespace {

AddressV4 v4(std::uint8_t last) { return {{192, 0, 2, last}}; }
AddressV6 v6(std::uint8_t network, std::uint8_t host) {
  AddressV6 address{{0x20, 1, 0xd, 0xb8, 0, 0, 0, network}};
  address.bytes[15] = host;
  return address;
}

class RateLimitsTest : public testing::Test {
 protected:
  /// Returns how many of `tries` connections may begin at that time.
  template <class A>
  unsigned begin(const RateLimit& limit, const A& source, std::uint32_t ms, unsigned tries,
                 RuleId rule = 1) {
    unsigned count = 0;
    for (unsigned n = 0; n < tries; ++n)
      count += limits->allows(rule, limit, source, Tick{ms}, true);
    return count;
  }
  std::unique_ptr<RateLimits> limits = std::make_unique<RateLimits>();
};

constexpr RateLimit kOfRule{.interval_ns = 1'000'000, .burst = 10, .per = RateLimit::Per::rule};
constexpr RateLimit kOfSource{
    .interval_ns = 100'000'000, .burst = 3, .per = RateLimit::Per::source};

TEST_F(RateLimitsTest, ABurstThenTheRate) {
  EXPECT_EQ(begin(kOfRule, v4(1), 5000, 100), 10U);
  EXPECT_EQ(begin(kOfRule, v4(2), 5001, 100), 1U) << "one a millisecond";
  EXPECT_EQ(begin(kOfRule, v4(1), 5004, 100), 3U);
  EXPECT_EQ(begin(kOfRule, v4(1), 9000, 100), 10U) << "no more than a burst";
  EXPECT_EQ(begin(kOfRule, v4(1), 9000, 100, 2), 10U) << "another rule has a bucket of its own";
}

TEST_F(RateLimitsTest, AskingTakesNothing) {
  for (int n = 0; n < 20; ++n) EXPECT_TRUE(limits->allows(1, kOfRule, v4(1), Tick{1}, false));
  for (int n = 0; n < 20; ++n) EXPECT_TRUE(limits->allows(1, kOfSource, v4(1), Tick{1}, false));
  EXPECT_EQ(begin(kOfRule, v4(1), 1, 20), 10U);
  EXPECT_FALSE(limits->allows(1, kOfRule, v4(1), Tick{1}, false));
}

TEST_F(RateLimitsTest, EachSourceHasItsOwnBucket) {
  EXPECT_EQ(begin(kOfSource, v4(1), 1000, 9), 3U);
  EXPECT_EQ(begin(kOfSource, v4(2), 1000, 9), 3U);
  EXPECT_EQ(begin(kOfSource, v6(1, 1), 1000, 2), 2U);
  EXPECT_EQ(begin(kOfSource, v6(1, 2), 1000, 9), 1U) << "a source is a /64";
  EXPECT_EQ(begin(kOfSource, v6(2, 1), 1000, 9), 3U);
  EXPECT_EQ(begin(kOfSource, v4(1), 1100, 9), 1U);
}

// Ticks begin anew after 49 days.
TEST_F(RateLimitsTest, TimeMayWrapAround) {
  const std::uint32_t last = UINT32_MAX;
  EXPECT_EQ(begin(kOfSource, v4(1), last - 50, 9), 3U);
  EXPECT_EQ(begin(kOfSource, v4(1), 20, 9), 0U);
  EXPECT_EQ(begin(kOfSource, v4(1), 60, 9), 1U);
  EXPECT_EQ(begin(kOfSource, v4(1), 5000, 9), 3U);
}

// Signed differences of ticks are wrong after 24.8 days.
TEST_F(RateLimitsTest, AnUnusedBucketIsFullAfterAnyTime) {
  for (const RateLimit& limit : {kOfRule, kOfSource}) {
    for (const std::uint32_t days : {1U, 24U, 26U, 48U, 49U, 50U, 60U}) {
      const std::uint32_t at = 1'000'000 * days;
      EXPECT_EQ(begin(limit, v4(1), at, 100), limit.burst);
      EXPECT_EQ(begin(limit, v4(1), at + days * 86'400'000, 100), limit.burst) << days;
      EXPECT_EQ(begin(limit, v4(1), at + days * 86'400'000 + 1'000'000, 100), limit.burst);
    }
  }
}

TEST_F(RateLimitsTest, WhatIsGivenBackMayBeTakenAgain) {
  for (const RateLimit& limit : {kOfRule, kOfSource}) {
    EXPECT_EQ(begin(limit, v4(1), 1000, 100), limit.burst);
    limits->give_back(1, limit, v4(1), Tick{1000});
    EXPECT_EQ(begin(limit, v4(1), 1000, 100), 1U);
    limits->give_back(1, limit, v4(2), Tick{5000});
    EXPECT_EQ(begin(limit, v4(1), 5000, 100), limit.burst) << "no more than a burst";
  }
}

// A flood of other sources takes buckets away, but each source that is asked often keeps its own:
// the fullest buckets go first.
TEST_F(RateLimitsTest, FloodsTakeTheFullestBuckets) {
  EXPECT_EQ(begin(kOfSource, v4(1), 1000, 9), 3U);
  for (std::uint32_t n = 0; n < 200'000; ++n) {
    const AddressV4 other{{10, static_cast<std::uint8_t>(n >> 16),
                           static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n)}};
    limits->allows(1, kOfSource, other, Tick{1000}, true);
  }
  EXPECT_EQ(begin(kOfSource, v4(1), 1000, 9), 0U);
}

TEST_F(RateLimitsTest, WorkersShareABucket) {
  static constexpr RateLimit kLimit{
      .interval_ns = 1'000'000'000, .burst = 1000, .per = RateLimit::Per::rule};
  std::vector<unsigned> counts(4);
  {
    std::vector<std::jthread> workers;
    for (unsigned& count : counts)
      workers.emplace_back([this, &count] { count = begin(kLimit, v4(1), 1, 5000); });
  }
  EXPECT_EQ(counts[0] + counts[1] + counts[2] + counts[3], 1000U);
}

}  // namespace
}  // namespace millrace
