// Tests how many expired connections a line ends before a burst, which waits for this work, in the
// worst case: all connections of the line, of both families, expire at one time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "conntrack/schemes.h"
#include "function/balance/balance.h"
#include "line/line.h"
#include "port/port.h"
#include "traffic/frame.h"

namespace millrace {
namespace {

constexpr std::uint32_t kClients = 4000;  // in each family
constexpr std::uint32_t kTimeoutMs = 1000;
constexpr std::uint32_t kBursts = 80'000;
/// Connections of a family that may end before a burst (docs/ageing.md).
constexpr std::uint64_t kMost = 64;

/// A port that receives bursts of one packet: first a packet of each client at time 0, then, after
/// the timeout, a packet each millisecond.
class OnePacketPort final : public Port {
 public:
  explicit OnePacketPort(const Line*& line) : line_(line) {}

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    if (made_ == 2 * kClients + kBursts) return false;
    const std::uint32_t n = std::min(made_, 2 * kClients);
    const std::uint32_t late = made_ - n;
    Frame frame{.ipv6 = n % 2 != 0,
                .from = {Endpoint::Side::client, n / 2, 1024},
                .to = {Endpoint::Side::server, 0, 80}};
    frame.flags = Frame::kSyn;
    auto& bytes = frames_[made_++ % frames_.size()];
    const auto length = static_cast<std::uint16_t>(builder_.build(frame));
    std::memcpy(bytes.data(), builder_.data(), length);
    burst.size = 1;
    burst.now = Tick{n < 2 * kClients ? 0 : kTimeoutMs + late};
    burst.data[0] = bytes.data();
    burst.length[0] = length;
    burst.wire_length[0] = length;
    return true;
  }
  void send(const Burst&, std::uint64_t forward) override {
    const std::uint64_t ended = line_->counters().ended();
    most_in_a_burst = std::max(most_in_a_burst, ended - ended_);
    ended_ = ended;
    forwarded += forward & 1;
  }

  std::uint64_t most_in_a_burst = 0;
  std::uint64_t forwarded = 0;

 private:
  const Line*& line_;
  FrameBuilder builder_;
  std::array<std::array<std::byte, 128>, kBurstsInFlight + 1> frames_{};
  std::uint32_t made_ = 0;
  std::uint64_t ended_ = 0;
};

class HousekeepingTest : public testing::TestWithParam<std::string> {};

TEST_P(HousekeepingTest, ABurstWaitsForSoManyConnectionsAndNoMore) {
  auto balance = Balance::create({});
  ASSERT_TRUE(balance.has_value());
  auto line = make_line({.ageing = GetParam(),
                         .capacity = 2 * kClients,
                         .capacity_v6 = 2 * kClients,
                         .timeouts = Timeouts::all(kTimeoutMs),
                         .pages = Pages::small},
                        **balance);
  ASSERT_TRUE(line.has_value());
  const Line* seen = line->get();
  OnePacketPort port(seen);
  (*line)->run(port);
  EXPECT_EQ(port.forwarded, 2 * kClients + kBursts);
  EXPECT_LE(port.most_in_a_burst, 2 * kMost);
  EXPECT_EQ((*line)->counters().ended(), GetParam() == NoAgeing::kName ? 0 : 2 * kClients);
}

INSTANTIATE_TEST_SUITE_P(Schemes, HousekeepingTest, testing::ValuesIn(AgeingSchemes::names()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace millrace
