#include "host/tcp_reset.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "parse/test_checksums.h"

namespace millrace {
namespace {

template <class A>
class ResetTest : public testing::Test {
 public:
  static constexpr bool kV4 = A::kBytes == 4;
  static constexpr std::uint16_t kL4 = kV4 ? 20 : 40;

  static Key<A> key() {
    Key<A> key{.source_port = 0x1234, .destination_port = 0x5678, .protocol = 6};
    key.source.bytes.front() = 10;
    key.destination.bytes.back() = 20;
    return key;
  }
  static test::Bytes written(const Reset<Key<A>>& reset) {
    test::Bytes bytes(kResetBytes<A>, std::byte{0xff});
    write_reset(bytes.data(), reset);
    return bytes;
  }
  /// Returns the headers of a TCP packet with this many bytes of its TCP header.
  static Headers headers(std::uint16_t bytes = 20) {
    return {.l4 = kL4,
            .l4_end = static_cast<std::uint16_t>(kL4 + bytes),
            .family = kV4 ? 4 : 6,
            .protocol = 6};
  }
  static std::uint32_t u32(const test::Bytes& bytes, unsigned at) {
    return test::get(bytes, at) << 16 | test::get(bytes, at + 2);
  }
};
using Families = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(ResetTest, Families);

TYPED_TEST(ResetTest, HasTheGivenEndsAndNumbers) {
  for (const bool has_ack : {false, true}) {
    const auto bytes = TestFixture::written(
        {TestFixture::key(), 0x01020304, has_ack ? std::optional(0xa0b0c0d0) : std::nullopt});
    const unsigned at = TestFixture::kL4;
    EXPECT_EQ(test::get(bytes, at), 0x1234U);
    EXPECT_EQ(test::get(bytes, at + 2), 0x5678U);
    EXPECT_EQ(TestFixture::u32(bytes, at + 4), 0x01020304U);
    EXPECT_EQ(TestFixture::u32(bytes, at + 8), has_ack ? 0xa0b0c0d0U : 0U);
    EXPECT_EQ(test::get(bytes, at + 12), has_ack ? 0x5014U : 0x5004U);
    EXPECT_EQ(test::l4_error(bytes, {TestFixture::kV4 ? 4U : 6U, at, 6}), 0U);
    if (TestFixture::kV4) {
      EXPECT_EQ(test::l3_error(bytes), 0U);
      EXPECT_EQ(test::get(bytes, 2), bytes.size());
    } else {
      EXPECT_EQ(test::get(bytes, 4), 20U);
    }
  }
}

/// Source: RFC 9293, 3.10.7.1.
TYPED_TEST(ResetTest, AnswersByTheNumbersOfThePacket) {
  auto bytes = TestFixture::written({TestFixture::key(), 100, 200});
  const auto answer_to = [&bytes](unsigned flags, std::uint16_t header = 20) {
    bytes[TestFixture::kL4 + 13] = static_cast<std::byte>(flags);
    return answering_reset<Key<TypeParam>>(bytes.data(), TestFixture::headers(header));
  };
  const auto to_syn = answer_to(0x02);
  ASSERT_TRUE(to_syn.has_value());
  EXPECT_EQ(to_syn->key, reversed(TestFixture::key()));
  EXPECT_EQ(to_syn->sequence, 0U);
  EXPECT_EQ(to_syn->acknowledged, 101U);
  const auto to_ack = answer_to(0x10);
  ASSERT_TRUE(to_ack.has_value());
  EXPECT_EQ(to_ack->sequence, 200U);
  EXPECT_EQ(to_ack->acknowledged, std::nullopt);
  EXPECT_EQ(answer_to(0x04), std::nullopt) << "no RST answers a RST";
  EXPECT_EQ(answer_to(0x14), std::nullopt);
  EXPECT_EQ(answer_to(0x06), std::nullopt) << "a RST with SYN";
  EXPECT_EQ(answer_to(0x02, 19), std::nullopt) << "the header is cut short";
}

}  // namespace
}  // namespace millrace
