#include "port/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "port/test_files.h"

namespace millrace {
namespace {

using test::Directory;

std::string u16(unsigned v) { return {static_cast<char>(v), static_cast<char>(v >> 8)}; }
std::string u32(std::uint32_t v) { return u16(v & 0xffff) + u16(v >> 16); }

constexpr std::uint32_t kMicro = 0xa1b2c3d4;
constexpr std::uint32_t kNano = 0xa1b23c4d;

/// Returns the header of a little-endian classic pcap, independent of the writer under test.
std::string pcap_header(std::uint32_t magic = kMicro, unsigned link = 1, unsigned snaplen = 65535) {
  return u32(magic) + u16(2) + u16(4) + u32(0) + u32(0) + u32(snaplen) + u32(link);
}
std::string pcap_packet(std::uint32_t s, std::uint32_t fraction, const std::string& bytes,
                        unsigned wire) {
  return u32(s) + u32(fraction) + u32(static_cast<std::uint32_t>(bytes.size())) + u32(wire) + bytes;
}

std::string pcapng_block(std::uint32_t type, std::string body) {
  body.resize((body.size() + 3) / 4 * 4);
  const std::string length = u32(static_cast<std::uint32_t>(body.size()) + 12);
  return u32(type) + length + body + length;
}
std::string pcapng_start() {
  return pcapng_block(0x0a0d0d0a,
                      u32(0x1a2b3c4d) + u16(1) + u16(0) + u32(0xffffffff) + u32(0xffffffff));
}
std::string pcapng_interface(unsigned link) {
  // Option if_tsresol (9) = 9: nanoseconds.
  return pcapng_block(1, u16(link) + u16(0) + u32(1000) + u16(9) + u16(1) + u32(9) + u32(0));
}
std::string enhanced_packet(std::uint64_t ns, const std::string& bytes, unsigned wire) {
  return pcapng_block(6, u32(0) + u32(static_cast<std::uint32_t>(ns >> 32)) +
                             u32(static_cast<std::uint32_t>(ns)) +
                             u32(static_cast<std::uint32_t>(bytes.size())) + u32(wire) + bytes);
}

Capture loaded(const std::string& bytes) {
  const Directory directory;
  test::write_file(directory / "x", bytes);
  auto capture = Capture::load(directory / "x");
  EXPECT_TRUE(capture.has_value()) << capture.error().message;
  return capture ? std::move(*capture) : Capture(CaptureFormat{});
}

std::string text(const Capture::Packet& packet) {
  return {reinterpret_cast<const char*>(packet.data), packet.captured};
}

/// Returns the error for this file, which must be `unreadable` and one line.
std::string refusal_of(const std::string& path) {
  const auto capture = Capture::load(path);
  EXPECT_FALSE(capture.has_value());
  if (capture) return {};
  EXPECT_EQ(capture.error().kind, Error::Kind::unreadable);
  EXPECT_EQ(capture.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(capture.error().message.starts_with(path)) << capture.error().message;
  return capture.error().message;
}

std::string refusal_of_bytes(const std::string& bytes) {
  const Directory directory;
  test::write_file(directory / "x", bytes);
  return refusal_of(directory / "x");
}

TEST(CaptureLoad, MicrosecondPcap) {
  const Capture capture = loaded(pcap_header() + pcap_packet(7, 5, "hello", 99) +
                                 pcap_packet(9, 999999, "", 60) + pcap_packet(8, 0, "abc", 3));
  ASSERT_EQ(capture.size(), 3U);
  EXPECT_EQ(capture.packet(0).timestamp_ns, 7'000'005'000U);
  EXPECT_EQ(capture.packet(0).wire_length, 99U);
  EXPECT_EQ(text(capture.packet(0)), "hello");
  EXPECT_EQ(capture.packet(1).captured, 0U);
  EXPECT_EQ(text(capture.packet(2)), "abc");
  EXPECT_EQ(capture.span_ns(), 2'999'994'000U);
  EXPECT_EQ(capture.captured_bytes(), 8U);
  EXPECT_EQ(capture.link_type(0), LinkType::ethernet);
  EXPECT_EQ(capture.format().snaplen, 65535U);
  EXPECT_FALSE(capture.format().nanoseconds);
  EXPECT_EQ(capture.loss(), "");
}

TEST(CaptureLoad, NanosecondPcap) {
  const Capture capture = loaded(pcap_header(kNano) + pcap_packet(7, 123456789, "x", 1));
  EXPECT_EQ(capture.packet(0).timestamp_ns, 7'123'456'789U);
  EXPECT_TRUE(capture.format().nanoseconds);
}

TEST(CaptureLoad, Pcapng) {
  const Capture capture = loaded(pcapng_start() + pcapng_interface(113) +
                                 enhanced_packet(1'600'000'000'123'456'789, "cooked", 1500));
  ASSERT_EQ(capture.size(), 1U);
  EXPECT_EQ(capture.packet(0).timestamp_ns, 1'600'000'000'123'456'789U);
  EXPECT_EQ(capture.packet(0).wire_length, 1500U);
  EXPECT_EQ(text(capture.packet(0)), "cooked");
  EXPECT_EQ(capture.link_type(0), LinkType::linux_cooked);
}

TEST(CaptureLoad, LinkTypes) {
  const std::vector<std::pair<unsigned, LinkType>> all{
      {1, LinkType::ethernet},       {12, LinkType::raw_ip},  {101, LinkType::raw_ip},
      {228, LinkType::raw_ip},       {229, LinkType::raw_ip}, {113, LinkType::linux_cooked},
      {276, LinkType::linux_cooked2}};
  for (const auto& [number, type] : all) {
    EXPECT_EQ(loaded(pcap_header(kMicro, number)).link_type(0), type) << number;
  }
}

// Each packet has its interface's link type; an interface without packets adds no link type.
TEST(CaptureLoad, PcapngWithSeveralLinkTypes) {
  const auto on = [](std::string packet, unsigned interface) {
    packet[8] = static_cast<char>(interface);
    return packet;
  };
  const std::string first = on(enhanced_packet(2'000, "ether", 60), 1);
  const std::string begin = pcapng_start() + pcapng_interface(0) + pcapng_interface(1) + first;
  const Capture one = loaded(begin + pcapng_interface(105) + first);
  EXPECT_EQ(one.size(), 2U);
  EXPECT_TRUE(one.is_uniform());
  EXPECT_EQ(one.format().dlts, std::vector{1});
  EXPECT_FALSE(one.format().needs_pcapng());
  const Capture two =
      loaded(begin + pcapng_interface(101) + on(enhanced_packet(3'001, "raw", 20), 2) + first);
  ASSERT_EQ(two.size(), 3U);
  EXPECT_FALSE(two.is_uniform());
  EXPECT_EQ(two.format().dlts, (std::vector{1, 12}));  // DLT_RAW
  EXPECT_TRUE(two.format().needs_pcapng());
  EXPECT_TRUE(two.format().nanoseconds);
  EXPECT_EQ(two.link_type(0), LinkType::ethernet);
  EXPECT_EQ(two.link_type(1), LinkType::raw_ip);
  EXPECT_EQ(two.link_type(2), LinkType::ethernet);
  EXPECT_EQ(text(two.packet(1)), "raw");
  EXPECT_EQ(two.loss(), "");
  EXPECT_NE(refusal_of_bytes(begin + pcapng_interface(105) + on(enhanced_packet(0, "wlan", 60), 2))
                .find("packet 2 (interface 2): link type IEEE802_11 (105) is not read"),
            std::string::npos);
  EXPECT_NE(loaded(begin + on(first, 2)).loss().find("after 1 packets"), std::string::npos);
}

TEST(CaptureLoad, NamesALinkTypeThatIsNotRead) {
  const std::string message = refusal_of_bytes(pcap_header(kMicro, 105));
  EXPECT_NE(message.find("IEEE802_11 (105)"), std::string::npos) << message;
  EXPECT_NE(message.find("Ethernet, raw IP or Linux cooked"), std::string::npos) << message;
  EXPECT_NE(refusal_of_bytes(pcap_header(kMicro, 4242)).find("4242"), std::string::npos);
}

// At any cut, the whole packets before the cut are used, and the loss is reported.
TEST(CaptureLoad, UsesATruncatedFileAsFarAsItGoes) {
  const std::string whole =
      pcap_header() + pcap_packet(1, 0, "first", 5) + pcap_packet(2, 0, "second", 6);
  for (std::size_t cut = 24; cut < whole.size(); ++cut) {
    const Capture capture = loaded(whole.substr(0, cut));
    EXPECT_EQ(capture.size(), cut >= 24 + 16 + 5 ? 1U : 0U) << cut;
    const bool between = cut == 24 || cut == 24 + 16 + 5;
    EXPECT_EQ(capture.loss().empty(), between) << cut;
  }
}

TEST(CaptureLoad, UsesACorruptFileAsFarAsItGoes) {
  const Capture capture =
      loaded(pcap_header() + pcap_packet(1, 0, "first", 5) + std::string(64, '\xff'));
  EXPECT_EQ(capture.size(), 1U);
  EXPECT_NE(capture.loss().find("after 1 packets"), std::string::npos) << capture.loss();
}

TEST(CaptureLoad, RefusesWhatIsNoCapture) {
  const Directory directory;
  EXPECT_NE(refusal_of(directory / "missing").find("No such file"), std::string::npos);
  EXPECT_NE(refusal_of(directory / "").find("is a directory"), std::string::npos);
  EXPECT_NE(refusal_of_bytes("").find("is empty"), std::string::npos);
  EXPECT_NE(refusal_of_bytes("function = \"balance\"\n").find("no capture"), std::string::npos);
  EXPECT_NE(refusal_of_bytes("\x1f\x8b\x08 and so on").find("is compressed: gzip -dc /"),
            std::string::npos);
  EXPECT_NE(refusal_of_bytes("\x28\xb5\x2f\xfd and so on").find("zstd -dc"), std::string::npos);
  EXPECT_NE(refusal_of_bytes(std::string("\xfd"
                                         "7zXZ\0 and so on",
                                         16))
                .find("xz -dc"),
            std::string::npos);
  EXPECT_NE(refusal_of_bytes("\x1f and so on").find("no capture"), std::string::npos);
  EXPECT_NE(refusal_of_bytes("abc").find("no capture"), std::string::npos);
  EXPECT_NE(refusal_of_bytes(pcap_header().substr(0, 20)).find("no capture"), std::string::npos);
}

TEST(CaptureLoad, RefusesWhatCannotFitIntoMemory) {
  const Directory directory;
  test::write_file(directory / "x", pcap_header());
  std::filesystem::resize_file(directory / "x", std::uintmax_t{1} << 43);  // sparse
  const auto capture = Capture::load(directory / "x");
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().kind, Error::Kind::failed);
  EXPECT_NE(capture.error().message.find("smaller"), std::string::npos) << capture.error().message;
}

TEST(CaptureLoad, RefusesWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const Directory directory;
  test::write_file(directory / "x", pcap_header());
  std::filesystem::permissions(directory / "x", std::filesystem::perms::none);
  EXPECT_NE(refusal_of(directory / "x").find("Permission denied"), std::string::npos);
}

TEST(CaptureAppend, PacketsNeverMove) {
  Capture capture({});
  std::vector<const std::byte*> at;
  constexpr unsigned kCount = 70'000;  // more than a block of the index and a chunk of bytes
  for (unsigned i = 0; i < kCount; ++i) {
    at.push_back(*capture.append(i, 1000, test::numbered_bytes(i % 90, i)));
  }
  const Capture moved = std::move(capture);
  ASSERT_EQ(moved.size(), kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    const auto& packet = moved.packet(i);
    ASSERT_EQ(packet.data, at[i]);
    ASSERT_EQ(packet.timestamp_ns, i);
    ASSERT_TRUE(std::ranges::equal(packet.bytes(), test::numbered_bytes(i % 90, i))) << i;
  }
  EXPECT_GT(moved.memory_bytes(), moved.captured_bytes() + kCount * sizeof(Capture::Packet));
}

TEST(CaptureAppend, TakesPacketsOfAnySize) {
  Capture capture({});
  const auto large = test::numbered_bytes(std::size_t{3} << 20, 1);
  ASSERT_TRUE(capture.append(0, 1, large).has_value());
  ASSERT_TRUE(capture.append(0, 1, test::numbered_bytes(10, 2)).has_value());
  EXPECT_TRUE(std::ranges::equal(capture.packet(0).bytes(), large));
}

// Code that copies or prefetches may form addresses within the slack of every packet.
TEST(CaptureAppend, EmptyPacketsHaveAnAddressToo) {
  Capture capture({});
  for (unsigned i = 0; i < 3; ++i) {
    const auto at = capture.append(i, 60, {});
    ASSERT_TRUE(at.has_value());
    EXPECT_NE(*at, nullptr);
    EXPECT_NE(capture.packet(i).data, nullptr);
    EXPECT_TRUE(capture.packet(i).bytes().empty());
  }
}

TEST(CaptureAppend, SpanCountsFromTheFirstPacket) {
  const Capture capture = test::capture_at({500, 100, 900, 700});
  EXPECT_EQ(capture.span_ns(), 400U);
  EXPECT_EQ(Capture(CaptureFormat{}).span_ns(), 0U);
}

}  // namespace
}  // namespace millrace
