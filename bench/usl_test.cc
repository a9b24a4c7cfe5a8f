#include "bench/usl.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace::bench {
namespace {

TEST(ScalabilityLaw, IsFoundInPointsThatFollowIt) {
  const ScalabilityLaw law{12.5, 0.03, 0.0007};
  std::vector<std::pair<double, double>> points;
  for (const double workers : {1.0, 2.0, 3.0, 4.0, 6.0, 8.0})
    points.emplace_back(workers, law.at(workers));
  const auto found = fit_scalability_law(points);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->one, 12.5, 1e-6);
  EXPECT_NEAR(found->contention, 0.03, 1e-8);
  EXPECT_NEAR(found->coherence, 0.0007, 1e-8);
  EXPECT_NEAR(found->at(64), 12.5 * 64 / (1 + 0.03 * 63 + 0.0007 * 64 * 63), 1e-6);
}

// The measurement with one worker was slow by chance. Without the bound at 0 the fit predicted a
// negative throughput.
TEST(ScalabilityLaw, PredictsNoMoreThanOneTimesTheWorkers) {
  const std::vector<std::pair<double, double>> measured{{1, 4.92},  {2, 8.84},   {4, 16.49},
                                                        {8, 29.37}, {12, 41.61}, {16, 54.49}};
  const auto found = fit_scalability_law(measured);
  ASSERT_TRUE(found.has_value());
  EXPECT_GE(found->contention, 0);
  EXPECT_GE(found->coherence, 0);
  EXPECT_NEAR(found->at(16), 54.49, 3);
  EXPECT_GT(found->at(64), found->at(16));
  EXPECT_LE(found->at(64), 64 * found->one);
}

TEST(ScalabilityLaw, NeedsThreeDifferentCounts) {
  const std::vector<std::pair<double, double>> two{{1, 10}, {2, 19}, {2, 19.5}};
  EXPECT_FALSE(fit_scalability_law(two).has_value());
}

}  // namespace
}  // namespace millrace::bench
