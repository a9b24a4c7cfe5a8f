#include "parse/rewrite.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "core/of_family.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace::test {
namespace {

/// Rewrites one end of a packet, by the parser's headers, in memory that ends with the packet.
template <class K>
Bytes rewritten(End end, const Bytes& p, const typename K::Address& address, std::uint16_t port) {
  const Parsed parsed = parse(LinkType::raw_ip, p);
  EXPECT_EQ(parsed.verdict, Verdict::tracked);
  const K was = of_family<K>(parsed.key4, parsed.key6);
  K is = was;
  (end == End::source ? is.source : is.destination) = address;
  if (has_ports(is.protocol)) (end == End::source ? is.source_port : is.destination_port) = port;
  rewrite(parsed.memory.get(), parsed.headers, was, is);
  return {parsed.memory.get(), parsed.memory.get() + parsed.length};
}

template <class K>
class Rewrite : public testing::Test {
 protected:
  static constexpr unsigned kFamily = K::Address::kBytes == 4 ? 4 : 6;
  static constexpr unsigned kL4 = kFamily == 4 ? 20 : 40;
  static constexpr unsigned kIcmp = kFamily == 4 ? 1 : 58;
  std::mt19937 random{1};

  Layout layout(unsigned protocol) const { return {kFamily, kL4, protocol}; }
  static bool ports(unsigned protocol) { return protocol != kIcmp; }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(Rewrite, Families);

TYPED_TEST(Rewrite, RightStaysRight) {
  for (const unsigned protocol : {6U, 17U, 33U, 136U, TestFixture::kIcmp}) {
    const Layout layout = this->layout(protocol);
    for (int round = 0; round < 3000; ++round) {
      Bytes p = packet(layout.family, protocol, this->random, 20 + this->random() % 50);
      make_right(p, layout);
      const End end = this->random() % 2 == 0 ? End::source : End::destination;
      const auto address = random_address<TypeParam>(this->random);
      const auto port = static_cast<std::uint16_t>(this->random());
      const Bytes q = rewritten<TypeParam>(end, p, address, port);
      ASSERT_EQ(l4_error(q, layout) % 0xffff, 0U) << protocol;
      if (layout.family == 4) {
        ASSERT_EQ(l3_error(q) % 0xffff, 0U);
      }

      // Nothing else has changed.
      const std::size_t place = end == End::source ? 0 : 1;
      Bytes expected = p;
      std::memcpy(expected.data() + layout.source() + place * layout.address(),
                  address.bytes.data(), address.bytes.size());
      if (this->ports(protocol)) put(expected, layout.l4 + (end == End::source ? 0 : 2), port);
      make_right(expected, layout);
      ASSERT_EQ(q, expected) << protocol;
    }
  }
}

TYPED_TEST(Rewrite, WrongStaysAsWrong) {
  for (const unsigned protocol : {6U, 17U, TestFixture::kIcmp}) {
    const Layout layout = this->layout(protocol);
    for (int round = 0; round < 3000; ++round) {
      Bytes p = packet(layout.family, protocol, this->random, 20 + this->random() % 50);
      const unsigned at = layout.l4 + layout.checksum();
      if (get(p, at) == 0) put(p, at, 1);
      if (layout.family == 4) put(p, 10, static_cast<unsigned>(this->random()));
      const auto address = random_address<TypeParam>(this->random);
      const auto port = static_cast<std::uint16_t>(this->random());
      const Bytes q = rewritten<TypeParam>(End::source, p, address, port);
      ASSERT_EQ(distance(l4_error(q, layout), l4_error(p, layout)), 0U);
      if (layout.family == 4) {
        ASSERT_EQ(distance(l3_error(q), l3_error(p)), 0U);
      }
    }
  }
}

TYPED_TEST(Rewrite, ThereAndBackIsTheSamePacket) {
  for (const unsigned protocol : {6U, 17U, 132U, TestFixture::kIcmp, 47U}) {
    for (int round = 0; round < 300; ++round) {
      Bytes p = packet(TestFixture::kFamily, protocol, this->random, 20 + this->random() % 50);
      const Parsed parsed = parse(LinkType::raw_ip, p);
      const Bytes q =
          rewritten<TypeParam>(End::destination, p, random_address<TypeParam>(this->random),
                               static_cast<std::uint16_t>(this->random()));
      typename TypeParam::Address was;
      const unsigned at = parsed.headers.l3 + this->layout(protocol).source() + was.kBytes;
      std::memcpy(was.bytes.data(), p.data() + at, was.kBytes);
      const auto port = static_cast<std::uint16_t>(get(p, TestFixture::kL4 + 2));
      ASSERT_EQ(rewritten<TypeParam>(End::destination, q, was, port), p);
    }
  }
}

// UDP-Lite's checksum covers the pseudo header and as many bytes as its second field says, at least
// the header (RFC 3828, 3.1); DCCP's may leave out data, too (RFC 4340, 9.2). So it covers
// addresses and ports in any case.
TYPED_TEST(Rewrite, ChecksumsOverAPartStayRight) {
  for (const unsigned covered : {8U, 12U, 24U}) {
    for (int round = 0; round < 300; ++round) {
      const std::size_t size = 24 + this->random() % 50;
      Bytes p = packet(TestFixture::kFamily, 136, this->random, size);
      const unsigned l4 = TestFixture::kL4;
      const unsigned addresses = TestFixture::kFamily == 4 ? 12 : 8;
      const auto error = [&](const Bytes& q) {
        const std::size_t address = 2 * std::size_t{TypeParam::Address::kBytes};
        const unsigned sum =
            plain_sum(q.data() + addresses, address, 136 + static_cast<unsigned>(size));
        return ~plain_sum(q.data() + l4, covered, sum) & 0xffff;
      };
      put(p, l4 + 4, covered);
      put(p, l4 + 6, 0);
      put(p, l4 + 6, error(p));
      const auto address = random_address<TypeParam>(this->random);
      const Bytes q =
          rewritten<TypeParam>(End::source, p, address, static_cast<std::uint16_t>(this->random()));
      ASSERT_EQ(error(q) % 0xffff, 0U);
      ASSERT_NE(get(q, l4 + 6), 0U);
    }
  }
}

TYPED_TEST(Rewrite, UdpChecksumZeroIsKept) {
  Bytes p = packet(TestFixture::kFamily, 17, this->random, 30);
  put(p, TestFixture::kL4 + 6, 0);
  const Bytes q =
      rewritten<TypeParam>(End::destination, p, random_address<TypeParam>(this->random), 9);
  EXPECT_EQ(get(q, TestFixture::kL4 + 6), 0U);
  EXPECT_EQ(get(q, TestFixture::kL4 + 2), 9U);
}

TYPED_TEST(Rewrite, UdpChecksumThatBecomesZeroIsAllOnes) {
  const Layout layout = this->layout(17);
  const auto address = random_address<TypeParam>(this->random);
  Bytes p = packet(layout.family, 17, this->random, 30);
  make_right(p, layout);
  // Use the port that brings the sum of all but the checksum to 0xffff.
  Bytes without = rewritten<TypeParam>(End::destination, p, address, 0);
  put(without, layout.l4 + 6, 0);
  const auto port = static_cast<std::uint16_t>(l4_error(without, layout));
  const Bytes q = rewritten<TypeParam>(End::destination, p, address, port);
  EXPECT_EQ(get(q, layout.l4 + 6), 0xffffU);
  EXPECT_EQ(l4_error(q, layout) % 0xffff, 0U);
}

// Only for UDP does a checksum of 0 mean none: in DCCP and UDP-Lite it has to be updated.
TYPED_TEST(Rewrite, ZeroMeansNoneForUdpOnly) {
  for (const unsigned protocol : {33U, 136U}) {
    const Layout layout = this->layout(protocol);
    Bytes p = packet(layout.family, protocol, this->random, 30);
    put(p, layout.l4 + 6, 0);
    const auto address = random_address<TypeParam>(this->random);
    const Bytes q = rewritten<TypeParam>(End::destination, p, address, 9);
    EXPECT_NE(get(q, layout.l4 + 6), 0U) << protocol;
    EXPECT_EQ(distance(l4_error(q, layout), l4_error(p, layout)), 0U) << protocol;
  }
}

TYPED_TEST(Rewrite, ResultZeroIsAllOnesWhereItIsForbidden) {
  for (const unsigned protocol : {33U, 136U}) {
    const Layout layout = this->layout(protocol);
    const auto address = random_address<TypeParam>(this->random);
    Bytes p = packet(layout.family, protocol, this->random, 30);
    make_right(p, layout);
    // Use the payload word that brings the sum of all but the checksum to 0xffff.
    Bytes q = rewritten<TypeParam>(End::destination, p, address, 0);
    put(q, layout.l4 + 6, 0);
    put(q, layout.l4 + 8, 0);
    put(p, layout.l4 + 8, l4_error(q, layout));
    make_right(p, layout);
    q = rewritten<TypeParam>(End::destination, p, address, 0);
    EXPECT_EQ(get(q, layout.l4 + 6), protocol == 33 ? 0U : 0xffffU);
    EXPECT_EQ(l4_error(q, layout) % 0xffff, 0U);
  }
}

TYPED_TEST(Rewrite, OtherProtocolsKeepTheirBytes) {
  for (const unsigned protocol : {47U, 50U, 4U}) {
    const Bytes p = packet(TestFixture::kFamily, protocol, this->random, 30);
    const Bytes q =
        rewritten<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
    EXPECT_TRUE(std::equal(p.begin() + TestFixture::kL4, p.end(), q.begin() + TestFixture::kL4));
  }
}

TYPED_TEST(Rewrite, ChecksumThatWasNotCapturedIsNotTouched) {
  for (const unsigned protocol : {6U, 17U, 132U}) {
    Bytes p = packet(TestFixture::kFamily, protocol, this->random, 40);
    const std::size_t field = protocol == 6 ? 16 : protocol == 17 ? 6 : 8;
    const std::size_t bytes = protocol == 132 ? 4 : 2;
    for (std::size_t length = 4; length < field + bytes; ++length) {
      const Bytes part = cut(p, TestFixture::kL4 + length);
      const Bytes q =
          rewritten<TypeParam>(End::source, part, random_address<TypeParam>(this->random), 9);
      EXPECT_EQ(get(q, TestFixture::kL4), 9U);
      EXPECT_TRUE(std::equal(part.begin() + TestFixture::kL4 + 4, part.end(),
                             q.begin() + TestFixture::kL4 + 4));
    }
  }
}

TYPED_TEST(Rewrite, ChecksumIsNotSoughtInThePadding) {
  Bytes p = packet(TestFixture::kFamily, 6, this->random, 16) + zeros(8);
  const Bytes q = rewritten<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
  EXPECT_TRUE(std::equal(p.end() - 8, p.end(), q.end() - 8));
}

TYPED_TEST(Rewrite, SctpStaysRightForPorts) {
  for (int round = 0; round < 200; ++round) {
    const Bytes payload = sctp(this->random, 12 + this->random() % 3000);
    const Bytes p =
        TestFixture::kFamily == 4 ? ipv4({.protocol = 132}, payload) : ipv6({.next = 132}, payload);
    const End end = round % 2 == 0 ? End::source : End::destination;
    const auto address = random_address<TypeParam>(this->random);
    const auto port = static_cast<std::uint16_t>(this->random());
    const Bytes q = rewritten<TypeParam>(end, p, address, port);
    EXPECT_EQ(get(q, TestFixture::kL4 + (end == End::source ? 0 : 2)), port);
    EXPECT_TRUE(is_right_sctp({q.begin() + TestFixture::kL4, q.end()}));

    // A cut capture gives the same bytes: the update needs no byte that was not captured.
    const std::size_t length = TestFixture::kL4 + 12;
    EXPECT_EQ(rewritten<TypeParam>(end, cut(p, length), address, port), cut(q, length));
  }
}

TYPED_TEST(Rewrite, SctpBehindPaddingAndExtensions) {
  const Bytes payload = sctp(this->random, 60);
  const Bytes p = TestFixture::kFamily == 4
                      ? ipv4({.protocol = 132, .options = bytes({1, 1, 1, 0})}, payload)
                      : ipv6({.next = 60}, extension(44, 2) + fragment6(132, 0, false) + payload);
  const Bytes q =
      rewritten<TypeParam>(End::source, p + zeros(7), random_address<TypeParam>(this->random), 9);
  EXPECT_TRUE(is_right_sctp({q.end() - 67, q.end() - 7}));
}

TYPED_TEST(Rewrite, SctpWithoutALength) {
  const Bytes payload = sctp(this->random, 60);
  const Bytes p = TestFixture::kFamily == 4
                      ? ipv4({.protocol = 132, .total = 0}, payload)
                      : ipv6({.next = 0, .payload = 0}, extension(132) + payload);
  const Bytes q = rewritten<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
  EXPECT_TRUE(is_right_sctp({q.end() - 60, q.end()}));
}

TYPED_TEST(Rewrite, SctpChecksumOfAFirstFragmentIsLeftAlone) {
  const Bytes payload = sctp(this->random, 64);
  const Bytes p = TestFixture::kFamily == 4
                      ? ipv4({.protocol = 132, .fragment = 0x2000}, payload)
                      : ipv6({.next = 60}, extension(44, 2) + fragment6(132, 0, true) + payload);
  const Bytes q = rewritten<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
  EXPECT_EQ(get(q, static_cast<unsigned>(q.size()) - 64), 9U);
  EXPECT_TRUE(std::equal(p.end() - 62, p.end(), q.end() - 62));
}

TYPED_TEST(Rewrite, IdentifiersOfQueriesChange) {
  const Layout layout = this->layout(TestFixture::kIcmp);
  for (int round = 0; round < 300; ++round) {
    Bytes p = packet(layout.family, layout.protocol, this->random, 20 + this->random() % 50);
    make_right(p, layout);
    const Parsed parsed = parse(LinkType::raw_ip, p);
    const TypeParam was = of_family<TypeParam>(parsed.key4, parsed.key6);
    ASSERT_EQ(was.source_port, was.destination_port);
    TypeParam is = was;
    is.source_port = is.destination_port = static_cast<std::uint16_t>(this->random());
    if (round % 2 == 0) is.source = random_address<TypeParam>(this->random);
    rewrite(parsed.memory.get(), parsed.headers, was, is);
    const Bytes q{parsed.memory.get(), parsed.memory.get() + parsed.length};
    ASSERT_EQ(get(q, layout.l4 + 4), is.source_port);
    ASSERT_EQ(l4_error(q, layout) % 0xffff, 0U);
    const Parsed again = parse(LinkType::raw_ip, q);
    ASSERT_EQ(of_family<TypeParam>(again.key4, again.key6), is);
  }
}

TYPED_TEST(Rewrite, SynsOfferNoLargerSegments) {
  const Layout layout = this->layout(6);
  const auto clamped = [&](const Bytes& options, unsigned flags) {
    Bytes header = zeros(20);
    header[12] = static_cast<std::byte>((20 + options.size()) / 4 << 4);
    header[13] = static_cast<std::byte>(flags);
    Bytes p = layout.family == 4 ? ipv4({.protocol = 6}, header + options)
                                 : ipv6({.next = 6}, header + options);
    make_right(p, layout);
    const Parsed parsed = parse(LinkType::raw_ip, p);
    clamp_mss(parsed.memory.get(), parsed.headers, 1400);
    const Bytes q{parsed.memory.get(), parsed.memory.get() + parsed.length};
    EXPECT_EQ(l4_error(q, layout) % 0xffff, 0U);
    return Bytes(q.begin() + layout.l4 + 20, q.end());
  };
  constexpr unsigned kSyn = 2;
  constexpr unsigned kAck = 16;
  const Bytes large = bytes({2, 4, 0x05, 0xb4});
  const Bytes right = bytes({2, 4, 0x05, 0x78});
  EXPECT_EQ(clamped(large, kSyn), right);
  EXPECT_EQ(clamped(large, kSyn | kAck), right);
  EXPECT_EQ(clamped(large, kAck), large) << "only a SYN offers an MSS";
  EXPECT_EQ(clamped(bytes({1, 3, 3, 7}) + large, kSyn), bytes({1, 3, 3, 7}) + right);
  EXPECT_EQ(clamped(bytes({1}) + large + bytes({1, 1, 0}), kSyn),
            bytes({1}) + right + bytes({1, 1, 0}))
      << "the MSS lies in two checksum words";
  for (const Bytes& other : {bytes({2, 4, 0x05, 0x78}), bytes({2, 4, 0x02, 0x18}),
                             bytes({0, 2, 4, 9}), bytes({3, 0, 4, 9}), bytes({1, 1, 2, 4}),
                             bytes({1, 1, 1, 2}), bytes({2, 5, 9, 9}), bytes({2, 3, 9, 9})})
    EXPECT_EQ(clamped(other, kSyn), other);
}

TEST(Checksum, ZeroRemainderOfAllOnesStaysZero) {
  Difference none;
  none.replace<std::uint32_t>(0x12345678, 0x12345678);
  EXPECT_EQ(none.apply_to(0x1234), 0x1234);
  EXPECT_EQ(none.apply_to(0), 0);
  EXPECT_EQ(none.apply_to(0xffff), 0);  // 0 and 0xffff are the same number
}

TEST(Checksum, WholeAgreesWithTheReference) {
  std::mt19937 random(2);
  for (std::size_t size = 0; size < 300; ++size) {
    Bytes data(size);
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    const unsigned expected = ~plain_sum(data.data(), size, 0) & 0xffff;
    Bytes field(2);
    detail::store(field.data(), internet_checksum(data));
    EXPECT_EQ(get(field, 0), expected) << size;
  }
}

TEST(Checksum, PseudoHeaderAgreesWithTheReference) {
  std::mt19937 random(3);
  for (const unsigned family : {4U, 6U}) {
    const Layout layout{family, family == 4 ? 20U : 40U, 6};
    Bytes p = packet(family, 6, random, 33);
    make_right(p, layout);
    const unsigned expected = get(p, layout.l4 + 16);
    put(p, layout.l4 + 16, 0);
    const auto sum = [&](auto address) {
      auto other = address;
      std::memcpy(address.bytes.data(), p.data() + layout.source(), layout.address());
      std::memcpy(other.bytes.data(), p.data() + layout.source() + layout.address(),
                  layout.address());
      return pseudo_header_sum(address, other, 6, 33);
    };
    const std::uint64_t pseudo = family == 4 ? sum(AddressV4{}) : sum(AddressV6{});
    Bytes field(2);
    detail::store(field.data(), internet_checksum(std::span(p).subspan(layout.l4), pseudo));
    EXPECT_EQ(get(field, 0), expected);
  }
}

}  // namespace
}  // namespace millrace::test
