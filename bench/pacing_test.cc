#include "pacing.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

TEST(SliceLatency, TellsPacketsOfTheMovingShard) {
  SliceLatency slice;
  slice.add(1'000, false);
  slice.add(3'000, true);
  SliceLatency other;
  other.add(8'000, true);
  slice.all.add(other.all);
  slice.moving.add(other.moving);
  EXPECT_EQ(slice.all.total(), 3U);
  EXPECT_DOUBLE_EQ(slice.all.mean(), 4);
  EXPECT_EQ(slice.moving.total(), 2U);
  EXPECT_DOUBLE_EQ(slice.moving.mean(), 5.5);
  EXPECT_LT(slice.all.percentile(50), 5);
}

TEST(SliceLatency, MeanHasWhatBinsCut) {
  SliceLatency slice;
  slice.add(10'000'000, false);
  EXPECT_DOUBLE_EQ(slice.all.mean(), 10'000);
  EXPECT_DOUBLE_EQ(slice.all.percentile(99), LatencyBins::kBeyond);
}

TEST(Pacing, RecordsWhatItIsToldTo) {
  Pacing pacing(4);
  EXPECT_EQ(pacing.slices(), 4U);
  EXPECT_EQ(pacing.slice(), Pacing::kNone);
  EXPECT_EQ(pacing.ns_each(), 0);
  pacing.set_ns_each(250);
  pacing.record(3);
  EXPECT_EQ(pacing.ns_each(), 250);
  EXPECT_EQ(pacing.slice(), 3U);
  const double before = pacing.now_ns();
  EXPECT_LE(before, pacing.now_ns());
}

}  // namespace
}  // namespace millrace::bench
