#include "parse/check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "parse/test_packets.h"

namespace millrace::test {
namespace {

/// Parses and checks one packet, which lies at the end of its heap block. Returns its verdict;
/// "tracked" only if the packet is still in its lane.
std::string checked(const Bytes& packet) {
  const auto memory = std::make_unique<std::byte[]>(packet.size());
  std::memcpy(memory.get(), packet.data(), packet.size());
  const auto burst = std::make_unique<Burst>();
  burst->size = 1;
  burst->data[0] = memory.get();
  burst->length[0] = static_cast<std::uint16_t>(packet.size());
  burst->wire_length[0] = burst->length[0];
  millrace::parse(*burst, LinkType::raw_ip);
  check_headers(*burst);
  const bool is_filed = burst->v4.size + burst->v6.size == 1;
  EXPECT_EQ(is_filed, burst->verdict[0] == Verdict::tracked);
  return std::string(to_string(burst->verdict[0]));
}
/// Returns the verdict of a payload in both families, of which `missing` bytes were not captured.
std::string verdict(unsigned protocol, const Bytes& payload, std::size_t missing = 0) {
  const Bytes v4 = ipv4({.protocol = protocol}, payload);
  const Bytes v6 = ipv6({.next = protocol}, payload);
  const std::string one = checked(cut(v4, v4.size() - missing));
  EXPECT_EQ(checked(cut(v6, v6.size() - missing)), one);
  return one;
}
Bytes with_flags(unsigned flags) {
  Bytes segment = tcp();
  segment[13] = static_cast<std::byte>(flags);
  return segment;
}
/// Returns a TCP segment whose header is said to be `words` words long.
Bytes of_words(unsigned words, std::size_t payload) {
  Bytes segment = tcp(payload);
  segment[12] = static_cast<std::byte>(words << 4);
  return segment;
}
/// Returns a header of UDP or UDP-Lite with this length or coverage, and 12 bytes of data.
Bytes of_length(unsigned length) {
  Bytes datagram = udp(12);
  datagram[4] = static_cast<std::byte>(length >> 8);
  datagram[5] = static_cast<std::byte>(length & 0xff);
  return datagram;
}

TEST(Check, FlagsThatExcludeEachOther) {
  // Linux's tcp_valid_flags, which does not count PSH, ECE and CWR.
  const std::set<std::string> valid{"S", "SU", "SA", "R", "RA", "FA", "FAU", "A", "AU"};
  for (unsigned flags = 0; flags < 256; ++flags) {
    std::string counting;
    if ((flags & 1) != 0) counting += 'F';
    if ((flags & 2) != 0) counting += 'S';
    if ((flags & 4) != 0) counting += 'R';
    if ((flags & 16) != 0) counting += 'A';
    if ((flags & 32) != 0) counting += 'U';
    EXPECT_EQ(verdict(6, with_flags(flags)), valid.contains(counting) ? "tracked" : "malformed")
        << flags;
  }
}

TEST(Check, LengthOfTheTcpHeader) {
  for (unsigned words = 0; words <= 15; ++words) {
    EXPECT_EQ(verdict(6, of_words(words, 40)), words < 5 ? "malformed" : "tracked") << words;
    if (words < 6) continue;
    const std::size_t options = 4 * (words - 5);
    EXPECT_EQ(verdict(6, of_words(words, options)), "tracked");
    EXPECT_EQ(verdict(6, of_words(words, options - 1)), "malformed");
    for (std::size_t missing = 1; missing <= options; ++missing)
      EXPECT_EQ(verdict(6, of_words(words, options), missing), "tracked") << missing;
  }
}

TEST(Check, PayloadsShorterThanTheHeader) {
  const std::pair<unsigned, std::size_t> least[]{{6, 20}, {17, 8}, {33, 12}, {132, 12}, {136, 8}};
  for (const auto& [protocol, bytes] : least) {
    Bytes header = protocol == 6 ? tcp(12) : udp(24);
    if (protocol != 6) header[5] = std::byte{8};
    for (std::size_t size = 4; size <= bytes; ++size) {
      EXPECT_EQ(verdict(protocol, cut(header, size)), size < bytes ? "malformed" : "tracked")
          << protocol << ' ' << size;
    }
    // The same bytes of a longer packet that was cut.
    for (std::size_t missing = 0; missing + 4 <= header.size(); ++missing)
      EXPECT_EQ(verdict(protocol, header, missing), "tracked") << protocol << ' ' << missing;
  }
}

TEST(Check, LengthsOfUdp) {
  for (unsigned length = 0; length <= 40; ++length)
    EXPECT_EQ(verdict(17, of_length(length)), length < 8 || length > 20 ? "malformed" : "tracked");
  EXPECT_EQ(verdict(17, of_length(0xffff)), "malformed");
  EXPECT_EQ(verdict(17, of_length(20), 8), "tracked");
  EXPECT_EQ(verdict(17, of_length(21), 8), "malformed");
}

TEST(Check, CoverageOfUdpLite) {
  for (unsigned length = 0; length <= 40; ++length) {
    const bool is_right = length == 0 || (length >= 8 && length <= 20);
    EXPECT_EQ(verdict(136, of_length(length)), is_right ? "tracked" : "malformed") << length;
  }
}

TEST(Check, LengthsOfFirstFragmentsAreThoseOfTheDatagram) {
  EXPECT_EQ(checked(ipv4({.protocol = 17, .fragment = 0x2000}, of_length(1000))), "tracked");
  EXPECT_EQ(checked(ipv4({.protocol = 17, .fragment = 0x2000}, of_length(7))), "malformed");
  EXPECT_EQ(checked(ipv6({.next = 44}, fragment6(17, 0, true) + of_length(1000))), "tracked");
  EXPECT_EQ(checked(ipv6({.next = 44}, fragment6(17, 0, false) + of_length(1000))), "malformed");
  EXPECT_EQ(checked(ipv6({.next = 44}, fragment6(6, 0, true) + of_words(6, 0))), "fragment_tiny");
}

TEST(Check, WithoutALengthOfIpNothingIsTooShort) {
  EXPECT_EQ(checked(ipv4({.protocol = 17, .total = 0}, of_length(1000))), "tracked");
  EXPECT_EQ(checked(ipv4({.total = 0}, of_words(15, 4))), "tracked");
  EXPECT_EQ(checked(ipv4({.total = 0}, with_flags(3))), "malformed");
  // A jumbogram, whose UDP header has the length 0 (RFC 2675, 4).
  const Bytes jumbo = extension(17) + of_length(0);
  EXPECT_EQ(checked(ipv6({.next = 0, .payload = 0}, jumbo)), "tracked");
  EXPECT_EQ(checked(ipv6({.next = 0}, jumbo)), "malformed");
}

TEST(Check, OtherPacketsOfTheBurstStay) {
  const auto burst = std::make_unique<Burst>();
  std::vector<Bytes> packets{ipv4({}, tcp()),
                             ipv6({}, with_flags(0)),
                             ipv4({.protocol = 17}, of_length(7)),
                             ipv6({.next = 17}, udp(4)),
                             ipv4({.protocol = 47}, zeros(4)),
                             ipv4({}, with_flags(2))};
  burst->size = static_cast<unsigned>(packets.size());
  for (unsigned i = 0; i < burst->size; ++i) {
    burst->data[i] = packets[i].data();
    burst->length[i] = static_cast<std::uint16_t>(packets[i].size());
    burst->wire_length[i] = burst->length[i];
  }
  millrace::parse(*burst, LinkType::raw_ip);
  check_headers(*burst);
  ASSERT_EQ(burst->v4.size, 3U);
  EXPECT_EQ(burst->v4.packet[0], 0);
  EXPECT_EQ(burst->v4.packet[1], 4);
  EXPECT_EQ(burst->v4.packet[2], 5);
  ASSERT_EQ(burst->v6.size, 1U);
  EXPECT_EQ(burst->v6.packet[0], 3);
}

}  // namespace
}  // namespace millrace::test
