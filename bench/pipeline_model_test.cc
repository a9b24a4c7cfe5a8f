#include "pipeline_model.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

// DHash's Table III, in cycles: input is Pcap 35 and LB 30, the ring is FIFO 50, the application is
// L3 100 and TCP 700.
constexpr StageTimes kDhash{.input = 65, .ring = 50, .application = 800};

TEST(PipelineModel, DhashIsInBalanceWithSevenAndABit) {
  EXPECT_DOUBLE_EQ(workers_in_balance(kDhash), 850.0 / 115);
  EXPECT_EQ(best_workers(kDhash), 8U);  // the paper rounds to the nearest number, 7
}

TEST(PipelineModel, WorkersAreTheLimitUntilTheReaderIs) {
  EXPECT_DOUBLE_EQ(pipeline_interval(kDhash, 1), 850);
  EXPECT_DOUBLE_EQ(pipeline_interval(kDhash, 7), 850.0 / 7);
  EXPECT_DOUBLE_EQ(pipeline_interval(kDhash, 8), 115);
  EXPECT_DOUBLE_EQ(pipeline_interval(kDhash, 64), 115);
}

TEST(PipelineModel, RunToCompletionNeedsNoRing) {
  EXPECT_DOUBLE_EQ(run_to_completion_interval(kDhash, 1), 865);
  EXPECT_DOUBLE_EQ(run_to_completion_interval(kDhash, 5), 173);
}

TEST(PipelineModel, OneWorkerIsTheLeast) {
  EXPECT_EQ(best_workers({.input = 100, .ring = 1, .application = 10}), 1U);
  EXPECT_EQ(best_workers({.input = 10, .ring = 0, .application = 20}), 2U);
}

}  // namespace
}  // namespace millrace::bench
