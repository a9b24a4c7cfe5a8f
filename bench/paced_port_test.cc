#include "bench/paced_port.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace millrace::bench {
namespace {

TEST(ArrivalQueue, HoldsWhatHasArrivedByThen) {
  ArrivalQueue queue(10, 100, 64);
  queue.arrive(0);
  EXPECT_EQ(queue.waiting(), 1U);
  queue.arrive(99.9);
  EXPECT_EQ(queue.waiting(), 1U);
  queue.arrive(300);
  EXPECT_EQ(queue.waiting(), 4U);
  for (const double ns : {0.0, 100.0, 200.0, 300.0}) EXPECT_EQ(queue.take(), ns);
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_FALSE(queue.is_over());
  queue.arrive(1e9);
  EXPECT_EQ(queue.waiting(), 6U);
  while (queue.waiting() > 0) queue.take();
  EXPECT_TRUE(queue.is_over());
  EXPECT_EQ(queue.lost(), 0U);
}

TEST(ArrivalQueue, SkipsSeveralAtOnce) {
  ArrivalQueue all(100, 1, 4);
  ArrivalQueue each(100, 1, 4);
  // After 0 to 9 ns: packets 0 to 3 wait, 4 to 9 are lost; then the room of two goes to 10 and 11.
  for (const double ns : {9.0, 11.0, 30.0}) {
    all.arrive(ns);
    each.arrive(ns);
    ASSERT_GE(all.waiting(), 3U);
    all.skip(3);
    for (int n = 0; n < 3; ++n) each.take();
    EXPECT_EQ(all.waiting(), each.waiting());
    EXPECT_EQ(all.lost(), each.lost());
  }
  EXPECT_EQ(all.take(), each.take());
}

TEST(ArrivalQueue, TimeThatGoesBackTakesNothingBack) {
  ArrivalQueue queue(10, 100, 64);
  queue.arrive(500);
  queue.arrive(200);
  queue.arrive(-1);
  EXPECT_EQ(queue.waiting(), 6U);
}

TEST(ArrivalQueue, LosesWhoFindsItFull) {
  ArrivalQueue queue(100, 1, 4);
  queue.arrive(5);  // 0 to 3 stay, 4 and 5 are lost
  EXPECT_EQ(queue.waiting(), 4U);
  EXPECT_EQ(queue.lost(), 2U);
  EXPECT_EQ(queue.take(), 0);
  queue.arrive(7);  // 6 stays, 7 is lost
  EXPECT_EQ(queue.lost(), 3U);
  EXPECT_EQ(queue.take(), 1);
  EXPECT_EQ(queue.take(), 2);
  queue.arrive(9);  // 8 and 9 stay
  std::vector<double> rest;
  while (queue.waiting() > 0) rest.push_back(queue.take());
  EXPECT_EQ(rest, (std::vector<double>{3, 6, 8, 9}));
  queue.arrive(1000);
  EXPECT_EQ(queue.waiting(), 4U);
  EXPECT_EQ(queue.lost(), 3U + 90 - 4);
}

/// Leaves as many gaps as the ring has places, and goes around the ring many times.
TEST(ArrivalQueue, KnowsWhoWaitsWhereEveryOtherIsLost) {
  constexpr unsigned kRoom = 3;
  ArrivalQueue queue(1000, 1, kRoom);
  queue.arrive(kRoom);  // the last packet is lost
  for (unsigned i = 0; i < 100; ++i) {
    const double oldest = queue.take();
    EXPECT_EQ(oldest, i < kRoom ? i : 4 + 2 * (i - kRoom)) << i;
    queue.arrive(kRoom + 2 * (i + 1));
    EXPECT_EQ(queue.waiting(), kRoom);
  }
  EXPECT_EQ(queue.lost(), 101U);
}

TEST(LatencyBins, AreOfOneMicrosecond) {
  LatencyBins bins;
  for (const double ns : {-3.0, 0.0, 999.0, 1000.0, 4'095'999.0, 4'096'000.0, 1e12}) bins.add(ns);
  EXPECT_EQ(bins.counts().size(), LatencyBins::kBeyond + 1);
  EXPECT_EQ(bins.counts()[0], 3U);
  EXPECT_EQ(bins.counts()[1], 1U);
  EXPECT_EQ(bins.counts()[4095], 1U);
  EXPECT_EQ(bins.counts()[4096], 2U);
  LatencyBins sum;
  sum.add(bins);
  sum.add(bins);
  EXPECT_EQ(sum.total(), 14U);
}

TEST(LatencyBins, PercentilesLieWithinABin) {
  LatencyBins bins;
  EXPECT_EQ(bins.percentile(50), 0);
  for (int i = 0; i < 90; ++i) bins.add(2500);
  for (int i = 0; i < 9; ++i) bins.add(10'500);
  bins.add(1e9);
  EXPECT_DOUBLE_EQ(bins.percentile(45), 2.5);
  EXPECT_DOUBLE_EQ(bins.percentile(90), 3);
  EXPECT_DOUBLE_EQ(bins.percentile(99), 11);
  EXPECT_EQ(bins.percentile(99.9), LatencyBins::kBeyond);
}

/// A clock that shows the time set by the test.
struct SetClock {
  double ns = 0;
  static std::uint64_t begin() { return 0; }
  double ns_since(std::uint64_t) const { return ns; }
};

/// Makes a port over a capture of three packets: so few that a burst ends with each pass.
class PacedPortTest : public testing::Test {
 protected:
  PacedPortTest() {
    for (unsigned i = 0; i < kPackets; ++i)
      EXPECT_TRUE(capture_.append(i, 64, std::array<std::byte, 64>{}).has_value());
  }
  PacedPort<SetClock> port(const Pace& pace) {
    std::vector<std::uint32_t> positions(kPackets);
    std::iota(positions.begin(), positions.end(), 0);
    return {*ReplayPort::create(capture_, {.loops = UINT32_MAX, .clock = Clock::wall}, nullptr,
                                CapturePart{0, positions}),
            pace, clock_};
  }
  unsigned receive(PacedPort<SetClock>& port, double ns) {
    clock_.ns = ns;
    burst_.size = 0;
    more_ = port.receive(burst_);
    return burst_.size;
  }

  static constexpr unsigned kPackets = 3;
  Capture capture_{CaptureFormat{}};
  SetClock clock_;
  Burst burst_;
  bool more_ = true;
};

TEST_F(PacedPortTest, GivesWhatHasArrivedInOrderAndEnds) {
  auto of_seven = port({.packets = 7, .ns_each = 1000, .queue = 64, .burst = 2});
  EXPECT_EQ(receive(of_seven, 0), 1U);
  EXPECT_EQ(receive(of_seven, 500), 0U);
  EXPECT_TRUE(more_);
  EXPECT_EQ(receive(of_seven, 2'500'000), 2U);
  EXPECT_EQ(burst_.now.ms, 2U);
  EXPECT_EQ(burst_.handle[0], 1U);
  std::uint64_t left = 4;
  while (left > 0 && more_) left -= receive(of_seven, 2'500'000);
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(receive(of_seven, 3'000'000), 0U);
  EXPECT_FALSE(more_);
  EXPECT_EQ(of_seven.taken(), 7U);
  EXPECT_EQ(of_seven.offered(), 7U);
}

TEST_F(PacedPortTest, CountsWhatIsLostAndOffersTheNextPacketInItsPlace) {
  auto short_queue = port({.packets = 9, .ns_each = 1000, .queue = 2, .burst = 32});
  EXPECT_EQ(receive(short_queue, 4000), 2U);  // 2 of 5 packets stay
  EXPECT_EQ(short_queue.lost(), 3U);
  EXPECT_EQ(receive(short_queue, 5000), 1U);
  EXPECT_EQ(burst_.handle[0], 2U);
  EXPECT_EQ(short_queue.taken() + short_queue.lost(), 6U);
}

TEST_F(PacedPortTest, TimesWhatIsForwardedFromItsArrival) {
  auto paced = port({.packets = 100, .ns_each = 10'000, .queue = 64, .burst = 32});
  EXPECT_EQ(receive(paced, 20'000), 3U);  // arrived at 0, 10 and 20 us
  const Burst first = burst_;
  EXPECT_EQ(receive(paced, 30'000), 1U);
  const Burst second = burst_;
  EXPECT_EQ(receive(paced, 31'000), 0U);
  clock_.ns = 50'500;
  paced.send(first, 0b101);  // the second packet is dropped
  clock_.ns = 70'000;
  paced.send(burst_, 0);
  paced.send(second, 1);
  EXPECT_EQ(paced.latency().total(), 3U);
  for (const unsigned us : {50U, 30U, 40U}) EXPECT_EQ(paced.latency().counts()[us], 1U) << us;
}

TEST_F(PacedPortTest, WithoutPacketsIsAtItsEnd) {
  auto none = port({});
  EXPECT_EQ(receive(none, 0), 0U);
  EXPECT_FALSE(more_);
}

}  // namespace
}  // namespace millrace::bench
