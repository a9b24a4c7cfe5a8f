// The rules of copy.h in a simulated cluster, and in one with mistakes.
// MILLRACE_REPLICATE_STEPS: ticks to simulate (100,000).
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/test_seed.h"
#include "replicate/test_cluster.h"

namespace millrace::test {

namespace {

int steps() {
  const char* const given = std::getenv("MILLRACE_REPLICATE_STEPS");
  return given != nullptr ? std::atoi(given) : 100'000;
}

TEST(Replication, KeepsItsRules) {
  SCOPED_TRACE(repeat());
  World world(seed(), Mistake::none);
  EXPECT_EQ(world.run(steps()), "");
  EXPECT_GT(world.served, 0U);
  EXPECT_GT(world.promotions, 0U);
}

TEST(Replication, MistakesAreFound) {
  SCOPED_TRACE(repeat());
  for (const Mistake mistake :
       {Mistake::epoch_unchecked, Mistake::acknowledged_early, Mistake::grant_kept,
        Mistake::slave_ages, Mistake::reused_early, Mistake::handed_back_early}) {
    bool is_found = false;
    for (unsigned n = 0; n < 100 && !is_found; ++n)
      is_found = !World(seed() + n, mistake).run(60'000).empty();
    EXPECT_TRUE(is_found) << "mistake " << static_cast<unsigned>(mistake);
  }
}

}  // namespace
}  // namespace millrace::test
