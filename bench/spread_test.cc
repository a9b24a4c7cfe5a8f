#include "spread.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

TEST(Spread, MedianOfAnEvenNumberLiesBetween) {
  EXPECT_EQ(spread_of({7}).median, 7);
  EXPECT_EQ(spread_of({9, 1}).median, 5);
  EXPECT_EQ(spread_of({9, 1, 2}).median, 2);
  EXPECT_EQ(confidence_of({9, 1, 4, 2}).median, 3);
  const auto [median, least, most] = spread_of({9, 1, 4, 2});
  EXPECT_EQ(median, 3);
  EXPECT_EQ(least, 1);
  EXPECT_EQ(most, 9);
}

}  // namespace
}  // namespace millrace::bench
