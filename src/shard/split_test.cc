#include "shard/split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::operator+;

void append(Capture& capture, const test::Bytes& packet) {
  ASSERT_TRUE(
      capture.append(1'000'000 * capture.size(), static_cast<std::uint32_t>(packet.size()), packet)
          .has_value());
}

test::Bytes udp(unsigned client_port, bool reply) {
  const auto ports =
      reply ? test::be(53) + test::be(client_port) : test::be(client_port) + test::be(53);
  auto packet = test::ethernet(0x0800) +
                test::ipv4({.protocol = 17, .options = {}}, ports + test::be(8) + test::be(0));
  if (reply) std::swap_ranges(packet.begin() + 26, packet.begin() + 30, packet.begin() + 30);
  return packet;
}

/// Steers packets from port 53 as replies, and no others.
class RepliesFrom53 final : public Steering {
 public:
  Steered steer(std::span<const KeyV4> keys) const override { return of(keys); }
  Steered steer(std::span<const KeyV6> keys) const override { return of(keys); }

 private:
  template <class K>
  static Steered of(std::span<const K> keys) {
    Steered steered;
    for (std::size_t i = 0; i < keys.size(); ++i)
      steered.by_destination |= std::uint64_t{keys[i].source_port == 53} << i;
    return steered;
  }
};

/// Returns a router's ICMP error to the sender of that packet.
test::Bytes error_about(const test::Bytes& packet) {
  auto error =
      test::ethernet(0x0800) + test::ipv4({.protocol = 1, .options = {}},
                                          test::bytes({11, 0, 0, 0}) + test::zeros(4) +
                                              test::Bytes(packet.begin() + 14, packet.end()));
  std::copy(packet.begin() + 26, packet.begin() + 30, error.begin() + 30);
  return error;
}

class SplitTest : public testing::Test {
 protected:
  SplitTest() : spread_(spreads().front().create(Secret::from_seed(3))), indirection_(128, 3) {}

  std::vector<CapturePart> parts_of(const Capture& capture) {
    const auto shards = shards_of(capture, *spread_, indirection_, RepliesFrom53());
    EXPECT_TRUE(shards.has_value());
    EXPECT_EQ(shards->size(), capture.size());
    return split(*shards, indirection_, 3);
  }

  std::unique_ptr<Spread> spread_;
  Indirection indirection_;
};

TEST_F(SplitTest, EveryPacketHasOneWorkerAndAConnectionToo) {
  Capture capture({});
  for (unsigned port = 2000; port < 2300; ++port) {
    append(capture, udp(port, false));
    append(capture, udp(port, true));
  }
  const auto parts = parts_of(capture);
  std::vector<unsigned> worker_of(capture.size(), 99);
  for (const CapturePart& part : parts) {
    EXPECT_GT(part.positions.size(), 100U);
    EXPECT_TRUE(std::ranges::is_sorted(part.positions));
    for (const auto position : part.positions) {
      ASSERT_EQ(worker_of[position], 99U);
      worker_of[position] = part.number;
    }
  }
  for (std::size_t i = 0; i < capture.size(); i += 2) {
    ASSERT_LT(worker_of[i], 3U);
    ASSERT_EQ(worker_of[i], worker_of[i + 1]) << i;
  }
}

TEST_F(SplitTest, ErrorsGoWithWhatTheyAreAbout) {
  Capture capture({});
  for (unsigned port = 2000; port < 2300; ++port) {
    append(capture, udp(port, false));
    append(capture, error_about(udp(port, false)));
    append(capture, error_about(udp(port, true)));
  }
  const auto parts = parts_of(capture);
  std::vector<unsigned> worker_of(capture.size(), 99);
  for (const CapturePart& part : parts) {
    EXPECT_GT(part.positions.size(), 100U);
    for (const auto position : part.positions) worker_of[position] = part.number;
  }
  for (std::size_t i = 0; i < capture.size(); i += 3) {
    ASSERT_EQ(worker_of[i], worker_of[i + 1]) << i;
    ASSERT_EQ(worker_of[i], worker_of[i + 2]) << i;
  }
}

TEST_F(SplitTest, FragmentsGoWithTheFirst) {
  Capture capture({});
  const auto fragment = [](unsigned port, unsigned field) {
    test::Bytes packet = udp(port, false);
    if ((field & 0x1fff) != 0) std::fill(packet.begin() + 34, packet.end(), std::byte{0xff});
    packet[18] = static_cast<std::byte>(port >> 8);
    packet[19] = static_cast<std::byte>(port);
    packet[20] = static_cast<std::byte>(field >> 8);
    packet[21] = static_cast<std::byte>(field);
    return packet;
  };
  for (unsigned port = 2000; port < 2300; ++port) {
    append(capture, udp(port, true));
    append(capture, fragment(port, 0x2001));  // before the first
    append(capture, fragment(port, 0x2000));
    append(capture, fragment(port, 2));
  }
  const auto parts = parts_of(capture);
  std::vector<unsigned> worker_of(capture.size(), 99);
  for (const CapturePart& part : parts) {
    EXPECT_GT(part.positions.size(), 100U);
    for (const auto position : part.positions) worker_of[position] = part.number;
  }
  for (std::size_t i = 0; i < capture.size(); i += 4) {
    for (std::size_t n = 1; n < 4; ++n) ASSERT_EQ(worker_of[i], worker_of[i + n]) << i << " " << n;
  }
}

TEST_F(SplitTest, WhatHasNoKeyGoesToTheFirst) {
  Capture capture({});
  for (unsigned i = 0; i < 10; ++i) append(capture, test::ethernet(0x0806) + test::zeros(28));
  const auto parts = parts_of(capture);
  EXPECT_EQ(parts[0].positions.size(), 10U);
  EXPECT_TRUE(parts[1].positions.empty());
}

TEST_F(SplitTest, WhatConcernsNoServiceIsSpread) {
  Capture capture({});
  for (unsigned port = 2000; port < 2300; ++port) append(capture, udp(port, false));
  const auto parts = parts_of(capture);
  for (const CapturePart& part : parts) EXPECT_GT(part.positions.size(), 50U);
}

}  // namespace
}  // namespace millrace
