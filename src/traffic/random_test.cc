#include "traffic/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

constexpr double kQ32 = 4294967296.0;

// The expected values come from an implementation in Python that gives the published outputs of
// splitmix64(1234567) and of xoshiro256** in the state {1, 2, 3, 4}.
TEST(Random, IsTheOneItSaysItIs) {
  Random random(1);
  for (const std::uint64_t expected :
       {0xb3f2af6d0fc710c5U, 0x853b559647364ceaU, 0x92f89756082a4514U})
    EXPECT_EQ(random(), expected);
}

// The digest is a constant, so every machine must draw the same numbers.
TEST(Random, DistributionsAreTheSameOnEveryMachine) {
  Random random(1);
  std::uint64_t digest = 0;
  for (int i = 0; i < 1000; ++i) {
    digest = digest * 31 + random.exponential(1000);
    digest = digest * 31 + random.log_uniform(10, 100'000);
  }
  EXPECT_EQ(digest, 15262956761741029681U);
}

TEST(Random, Log2IsRight) {
  for (std::uint64_t x = 1; x < (std::uint64_t{1} << 62); x = x * 5 / 3 + 1) {
    ASSERT_NEAR(static_cast<double>(log2_q32(x)) / kQ32, std::log2(static_cast<double>(x)), 1e-6)
        << x;
  }
  EXPECT_EQ(log2_q32(1), 0U);
  EXPECT_EQ(log2_q32(1ULL << 63) >> 32, 63U);
}

TEST(Random, Exp2IsRight) {
  for (std::uint64_t e = 0; e < (std::uint64_t{31} << 32); e += 12'345'678'901) {
    const double expected = std::exp2(static_cast<double>(e) / kQ32);
    ASSERT_NEAR(static_cast<double>(exp2_q32(e)) / kQ32 / expected, 1, 1e-6) << e;
  }
}

TEST(Random, ExponentialHasItsMeanAndSpread) {
  Random random(7);
  constexpr int kCount = 200'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto x = static_cast<double>(random.exponential(1'000'000));
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean / 1e6, 1, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean) / 1e6, 1, 0.02);
}

TEST(Random, LogUniformHasItsMedianAndBounds) {
  Random random(7);
  int below = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto x = random.log_uniform(10, 100'000);
    ASSERT_GE(x, 10U);
    ASSERT_LE(x, 100'000U);
    below += x < 1000 ? 1 : 0;
  }
  EXPECT_NEAR(below, 50'000, 1'000);
}

TEST(Permutation, HitsEveryPlaceOnce) {
  for (const std::uint64_t n : {1U, 2U, 3U, 64U, 65U, 1000U, 100'003U}) {
    const Permutation permutation(n, n);
    std::vector<bool> hit(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permutation(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(hit[to]) << n << ": " << i;
      hit[to] = true;
    }
  }
}

}  // namespace
}  // namespace millrace
