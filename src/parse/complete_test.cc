// Tests the completion of checksums that a sender left to its hardware, against sums made byte by
// byte.
#include "parse/complete.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::Bytes;
using test::operator+;

unsigned folded(const std::byte* at, std::size_t size, unsigned sum = 0) {
  for (std::size_t i = 0; i < size; ++i)
    sum += std::to_integer<unsigned>(at[i]) << (i % 2 == 0 ? 8 : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

/// Returns the pseudo header's sum for a packet with its transport header at `l4`.
unsigned pseudo(const Bytes& packet, std::size_t l3, std::size_t l4, unsigned protocol) {
  const bool v4 = l4 - l3 < 40;
  const std::byte* addresses = packet.data() + l3 + (v4 ? 12 : 8);
  const auto length = static_cast<unsigned>(packet.size() - l4);
  return folded(addresses, v4 ? 8 : 32, protocol + length);
}

void set(Bytes& packet, std::size_t at, unsigned value) {
  packet[at] = static_cast<std::byte>(value >> 8);
  packet[at + 1] = static_cast<std::byte>(value);
}

Bytes completed(Bytes packet) {
  auto burst = std::make_unique<Burst>();
  burst->size = 1;
  burst->data[0] = packet.data();
  burst->length[0] = static_cast<std::uint16_t>(packet.size());
  burst->wire_length[0] = burst->length[0];
  parse(*burst, LinkType::ethernet);
  complete_checksums(*burst);
  return packet;
}

struct Case {
  Bytes packet;
  std::size_t l4;
  unsigned protocol;
  std::size_t field;  ///< offset of the checksum in the transport header
};

std::vector<Case> cases(std::size_t payload) {
  Bytes tcp = test::tcp(payload);
  Bytes udp = test::udp(payload);
  for (std::size_t i = 0; i < payload; ++i) {
    tcp[20 + i] = static_cast<std::byte>(i * 7 + 1);
    udp[8 + i] = static_cast<std::byte>(i * 5 + 3);
  }
  return {{test::ethernet(0x0800) + test::ipv4({.protocol = 6}, tcp), 34, 6, 16},
          {test::ethernet(0x0800) + test::ipv4({.protocol = 17}, udp), 34, 17, 6},
          {test::ethernet(0x86dd) + test::ipv6({.next = 6}, tcp), 54, 6, 16},
          {test::ethernet(0x86dd) + test::ipv6({.next = 17}, udp), 54, 17, 6}};
}

TEST(CompleteChecksums, WhatWasLeftToHardware) {
  for (const std::size_t payload : {0U, 1U, 2U, 7U, 1400U}) {
    for (auto& [packet, l4, protocol, field] : cases(payload)) {
      SCOPED_TRACE(std::to_string(payload) + " bytes, protocol " + std::to_string(protocol));
      const unsigned partial = pseudo(packet, 14, l4, protocol);
      set(packet, l4 + field, partial);
      const Bytes whole = completed(packet);
      EXPECT_EQ(folded(whole.data() + l4, whole.size() - l4, pseudo(whole, 14, l4, protocol)),
                0xffffU);
      // Nothing else has changed.
      Bytes same = whole;
      set(same, l4 + field, partial);
      EXPECT_EQ(same, packet);
      EXPECT_EQ(completed(whole), whole);
    }
  }
}

TEST(CompleteChecksums, WhatIsWrongStaysWrong) {
  for (auto& [packet, l4, protocol, field] : cases(100)) {
    for (const unsigned wrong : {0U, 1U, 0x1234U, 0xffffU}) {
      set(packet, l4 + field, wrong);
      EXPECT_EQ(completed(packet), packet);
    }
  }
}

TEST(CompleteChecksums, FragmentsAndWhatIsCutShortAreLeftAlone) {
  Bytes fragment =
      test::ethernet(0x0800) + test::ipv4({.protocol = 17, .fragment = 0x2000}, test::udp(64));
  set(fragment, 34 + 6, pseudo(fragment, 14, 34, 17));
  EXPECT_EQ(completed(fragment), fragment);
  for (auto& [packet, l4, protocol, field] : cases(100)) {
    set(packet, l4 + field, pseudo(packet, 14, l4, protocol));
    for (std::size_t length = 14; length < l4 + field + 2; ++length) {
      const Bytes cut = test::cut(packet, length);
      EXPECT_EQ(completed(cut), cut);
    }
  }
}

}  // namespace
}  // namespace millrace
