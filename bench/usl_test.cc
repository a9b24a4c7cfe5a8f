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

TEST(ScalabilityLaw, NeedsThreeDifferentCounts) {
  const std::vector<std::pair<double, double>> two{{1, 10}, {2, 19}, {2, 19.5}};
  EXPECT_FALSE(fit_scalability_law(two).has_value());
}

}  // namespace
}  // namespace millrace::bench
