#include "port/capture_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "port/test_files.h"

namespace millrace {
namespace {

class CaptureOutputTest : public testing::Test {
 protected:
  CaptureOutput output(unsigned ports) {
    auto writer = CaptureWriter::create(path(), CaptureFormat{{1}, 65535, true});
    EXPECT_TRUE(writer.has_value());
    return CaptureOutput(std::move(*writer), ports);
  }
  CaptureOutput::Packet packet(std::uint64_t order) const {
    return {order, test::kStart + order, 60, bytes_, {}};
  }
  /// Returns the `order` of each packet in the file, computed from its timestamp.
  std::vector<std::uint64_t> written() const {
    const auto capture = Capture::load(path());
    EXPECT_TRUE(capture.has_value());
    std::vector<std::uint64_t> orders;
    for (std::size_t i = 0; i < capture->size(); ++i)
      orders.push_back(capture->packet(i).timestamp_ns - test::kStart);
    return orders;
  }

 private:
  std::string path() const { return directory_ / "out"; }

  test::Directory directory_;
  std::vector<std::byte> bytes_ = test::numbered_bytes(60, 1);
};

TEST_F(CaptureOutputTest, WaitsForWhoMayStillComeFirst) {
  CaptureOutput out = output(2);
  const std::array late{packet(10), packet(20)};
  const std::array early{packet(5), packet(15)};
  out.write(0, late, 21);
  out.write(1, early, 16);
  out.write(1, {}, 30);  // port 1 promises to write nothing below 30
  out.end(0);
  out.end(1);
  ASSERT_TRUE(out.finish().has_value());
  EXPECT_EQ(written(), (std::vector<std::uint64_t>{5, 10, 15, 20}));
}

TEST_F(CaptureOutputTest, WhoEndsHoldsUpNobody) {
  CaptureOutput out = output(3);
  out.end(1);
  out.end(2);
  std::vector<CaptureOutput::Packet> many;
  for (std::uint64_t order = 0; order < 20'000; ++order) many.push_back(packet(order));
  out.write(0, many, 20'000);
  out.end(0);
  ASSERT_TRUE(out.finish().has_value());
  EXPECT_EQ(written().size(), 20'000U);
}

// Each packet belongs to a random port, some ports get hardly any packets, and each port writes in
// a thread of its own, in bursts of random size.
TEST_F(CaptureOutputTest, AnyThreadsInAnyOrderGiveTheOrderOfTheWhole) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  constexpr unsigned kPorts = 4;
  constexpr std::uint64_t kPackets = 60'000;
  std::mt19937 random(seed);
  std::array<std::vector<CaptureOutput::Packet>, kPorts> of_port;
  for (std::uint64_t order = 0; order < kPackets; ++order) {
    const unsigned port =
        random() % 1000 == 0 ? 3 : static_cast<unsigned>(order / 9000 + random() % 2) % 3;
    of_port[port].push_back(packet(order));
  }
  CaptureOutput out = output(kPorts);
  {
    std::vector<std::jthread> threads;
    for (unsigned port = 0; port < kPorts; ++port) {
      threads.emplace_back([&, port] {
        std::mt19937 own(seed + port);
        std::span<const CaptureOutput::Packet> left = of_port[port];
        while (!left.empty()) {
          const std::size_t count = std::min<std::size_t>(left.size(), own() % 64);
          const auto burst = left.first(count);
          left = left.subspan(count);
          out.write(port, burst, left.empty() ? kPackets : left.front().order);
        }
        out.end(port);
      });
    }
  }
  ASSERT_TRUE(out.finish().has_value());
  const auto orders = written();
  EXPECT_EQ(orders.size(), kPackets);
  EXPECT_TRUE(std::ranges::is_sorted(orders));
}

}  // namespace
}  // namespace millrace
