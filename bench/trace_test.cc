#include "bench/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "traffic/frame.h"

namespace millrace::bench {
namespace {

/// Makes a capture with one packet a millisecond; the numbers name the packets' connections. Odd
/// numbers are IPv6.
Capture capture_of(const std::vector<unsigned>& connections) {
  Capture capture(CaptureFormat{});
  FrameBuilder builder;
  std::uint64_t at = 1'000'000'000;
  for (const unsigned number : connections) {
    const Frame frame{.ipv6 = number % 2 == 1,
                      .protocol = Frame::Protocol::udp,
                      .from = {Endpoint::Side::client, number, 1000},
                      .to = {Endpoint::Side::server, 1, 53}};
    const std::uint32_t length = builder.build(frame);
    EXPECT_TRUE(capture.append(at, length, {builder.data(), length}).has_value());
    at += 1'000'000;
  }
  return capture;
}

TEST(TraceProfile, CountsWhatATableFeels) {
  const auto profile = profile_of(capture_of({0, 1, 2, 0, 0, 1}));
  ASSERT_TRUE(profile.has_value());
  EXPECT_EQ(profile->packets, 6U);
  EXPECT_EQ(profile->keyless, 0U);
  EXPECT_EQ(profile->connections_v4, 2U);
  EXPECT_EQ(profile->connections_v6, 1U);
  EXPECT_DOUBLE_EQ(profile->seconds, 0.005);
  EXPECT_DOUBLE_EQ(profile->begun_a_second, 600);
  EXPECT_DOUBLE_EQ(profile->first_packets, 0.5);
  EXPECT_DOUBLE_EQ(profile->busiest, 0.5);
  EXPECT_EQ(profile->reuse_median, 2U) << "the median of 0, 2 and 2";
}

TEST(TraceProfile, KnowsAnEmptyCapture) {
  const auto profile = profile_of(capture_of({}));
  ASSERT_TRUE(profile.has_value());
  EXPECT_EQ(profile->connections(), 0U);
  EXPECT_EQ(profile->seconds, 0);
}

TEST(TraceProfile, FindsHowManyOthersWereMet) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<unsigned> met(500);
  for (unsigned& number : met)
    number = static_cast<unsigned>(std::min(random() % 60, random() % 60));
  std::vector<std::size_t> reuse;
  for (std::size_t i = 0; i < met.size(); ++i) {
    std::set<unsigned> others;
    std::size_t before = i;
    while (before > 0 && met[before - 1] != met[i]) others.insert(met[--before]);
    if (before > 0) reuse.push_back(others.size());
  }
  std::ranges::sort(reuse);
  const auto profile = profile_of(capture_of(met));
  ASSERT_TRUE(profile.has_value());
  EXPECT_EQ(profile->reuse_median, reuse[(reuse.size() - 1) / 2]);
  EXPECT_EQ(profile->reuse_90, reuse[(reuse.size() - 1) * 9 / 10]);
}

}  // namespace
}  // namespace millrace::bench
