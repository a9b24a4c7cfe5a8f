#include "parse/tcp.h"

#include <gtest/gtest.h>

#include "parse/test_packets.h"

namespace millrace::test {
namespace {

/// Returns a segment with SYN and `payload` bytes, whose header is said to be `words` words long.
Bytes syn(unsigned words, std::size_t payload) {
  Bytes segment = tcp(payload);
  segment[12] = static_cast<std::byte>(words << 4);
  segment[13] = std::byte{detail::kSyn};
  return segment;
}
/// Reads a segment in both families, with the packet at the end of its heap block.
Segment segment_of(const Bytes& tcp, std::size_t missing = 0) {
  const Parsed v4 = parse(LinkType::raw_ip, cut(ipv4({}, tcp), 20 + tcp.size() - missing));
  const Parsed v6 = parse(LinkType::raw_ip, cut(ipv6({}, tcp), 40 + tcp.size() - missing));
  const Segment one = read_segment(v4.memory.get(), v4.headers);
  const Segment other = read_segment(v6.memory.get(), v6.headers);
  EXPECT_EQ(other.is_whole, one.is_whole);
  EXPECT_EQ(other.length(), one.length());
  EXPECT_EQ(other.window_scale, one.window_scale);
  return one;
}

TEST(Tcp, LengthIsBehindTheHeader) {
  for (unsigned words = 5; words <= 15; ++words) {
    const Segment segment = segment_of(syn(words, 40));
    EXPECT_TRUE(segment.is_whole) << words;
    EXPECT_EQ(segment.length(), 60 - 4 * words + 1) << words;
  }
}

TEST(Tcp, ImpossibleHeaderLengthsAreNotRead) {
  for (unsigned words = 0; words < 5; ++words)
    EXPECT_FALSE(segment_of(syn(words, 40)).is_whole) << words;
  for (unsigned words = 6; words <= 15; ++words) {
    EXPECT_TRUE(segment_of(syn(words, 4 * (words - 5))).is_whole) << words;
    EXPECT_FALSE(segment_of(syn(words, 4 * (words - 5) - 1)).is_whole) << words;
  }
}

TEST(Tcp, AHeaderThatIsCutIsNotRead) {
  EXPECT_FALSE(segment_of(syn(5, 0), 1).is_whole);
  Bytes scaled = syn(6, 4);
  scaled[20] = std::byte{3};
  scaled[21] = std::byte{3};
  scaled[22] = std::byte{7};
  EXPECT_EQ(segment_of(scaled).window_scale, 7);
  // The bytes that a capture has cut off count, but the options among them cannot be read.
  const Segment cut_options = segment_of(scaled, 2);
  EXPECT_TRUE(cut_options.is_whole);
  EXPECT_EQ(cut_options.window_scale, kScaleUnknown);
}

}  // namespace
}  // namespace millrace::test
