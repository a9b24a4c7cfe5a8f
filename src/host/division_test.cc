// Tests the division of packets: the fragments, put together again byte by byte, are the packet.
#include "host/division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/test_seed.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::Bytes;
using test::bytes;
using test::operator+;

/// Returns the fragments of a packet.
std::vector<Bytes> divided(Bytes packet, unsigned mtu) {
  const Division division(packet.data(), static_cast<unsigned>(packet.size()), mtu);
  std::vector<Bytes> all(division.count());
  for (unsigned n = 1; n < division.count(); ++n) {
    all[n].resize(division.bytes(n));
    division.write(n, all[n].data());
  }
  all[0].resize(division.bytes(0));
  division.write(0, all[0].data());
  division.make_first();
  EXPECT_TRUE(std::ranges::equal(all[0], std::span(packet).first(division.bytes(0))));
  return all;
}

unsigned header_of(const Bytes& ip) { return (detail::u8(ip.data()) & 15U) * 4; }

TEST(Division, TheFragmentsAreThePacket) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (unsigned round = 0; round < 3000; ++round) {
    const auto below = [&random](unsigned n) { return static_cast<unsigned>(random() % n); };
    const unsigned mtu = 68 + below(1500);
    Bytes payload(mtu + below(6000));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    const bool was_last = below(2) == 0;
    if (!was_last) payload.resize(payload.size() / 8 * 8);
    const unsigned offset = below(100);
    Bytes packet =
        test::ipv4({.protocol = 17, .fragment = (was_last ? 0U : 0x2000U) | offset}, payload);
    if (packet.size() <= mtu) continue;
    Bytes whole;
    const auto parts = divided(packet, mtu);
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const Bytes& part = parts[n];
      const unsigned field = detail::u16(part.data() + 6);
      EXPECT_LE(part.size(), mtu);
      EXPECT_TRUE(n + 1 == parts.size() || part.size() + 8 > mtu);  // as few as can be
      EXPECT_EQ(detail::u16(part.data() + 2), part.size());
      EXPECT_EQ(internet_checksum({part.data(), header_of(part)}), 0);
      EXPECT_EQ((field & 0x1fff) * 8, offset * 8 + whole.size());
      EXPECT_EQ((field & 0x2000) == 0, was_last && n + 1 == parts.size());
      EXPECT_EQ(detail::u16(part.data() + 4), 77);
      EXPECT_TRUE(std::equal(part.begin() + 12, part.begin() + 20, packet.begin() + 12));
      whole = whole + Bytes(part.begin() + header_of(part), part.end());
    }
    ASSERT_EQ(whole, payload);
  }
}

// RFC 791, 3.1: the highest bit of an option's type says whether fragments get a copy.
TEST(Division, OptionsAreCopiedByTheirBit) {
  const Bytes security = bytes({130, 4, 9, 9});  // copied
  const Bytes record = bytes({7, 7, 4, 0, 0, 0, 0});
  const Bytes alert = bytes({148, 4, 0, 0});  // copied
  const auto of = [](const Bytes& options) {
    auto parts = divided(test::ipv4({.fragment = 0, .options = options}, test::zeros(200)), 100);
    EXPECT_EQ(header_of(parts[0]), 20 + options.size());
    EXPECT_TRUE(std::equal(options.begin(), options.end(), parts[0].begin() + 20));
    EXPECT_EQ(parts[1].size() - header_of(parts[1]), (100 - header_of(parts[1])) / 8 * 8);
    return Bytes(parts[1].begin() + 20, parts[1].begin() + header_of(parts[1]));
  };
  EXPECT_EQ(of(security), security);
  EXPECT_EQ(of(record + bytes({1})), Bytes{});
  EXPECT_EQ(of(bytes({1}) + record + security), security);
  EXPECT_EQ(of(security + record + bytes({1}) + alert), security + alert);
  EXPECT_EQ(of(bytes({0x88, 3, 9, 0})), bytes({0x88, 3, 9, 0}));
}

TEST(Division, OnlyPacketsThatAllowIt) {
  const auto may = [](const Bytes& packet) {
    const auto parsed = test::parse(LinkType::raw_ip, packet);
    return may_be_divided(parsed.memory.get(), parsed.headers, 68);
  };
  EXPECT_TRUE(may(test::ipv4({.fragment = 0}, test::tcp())));
  EXPECT_FALSE(may(test::ipv4({.fragment = 0x4000}, test::tcp())));
  EXPECT_TRUE(may(test::ipv4({.fragment = 0x2003}, test::tcp())));
  EXPECT_FALSE(may(test::ipv6({}, test::tcp())));
  EXPECT_TRUE(may(test::ipv4({.protocol = 17, .fragment = 0}, test::zeros(64 * 48))));
  EXPECT_FALSE(may(test::ipv4({.protocol = 17, .fragment = 0}, test::zeros(64 * 48 + 1))));
}

}  // namespace
}  // namespace millrace
