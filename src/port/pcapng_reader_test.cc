#include "port/pcapng_reader.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace millrace {
namespace {

/// Makes blocks in either byte order, independent of the writer.
class Blocks {
 public:
  explicit Blocks(bool swapped = false) : swapped_(swapped) {}

  template <class T>
  std::string number(T value) const {
    if (swapped_) value = std::byteswap(value);
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  std::string block(std::uint32_t type, std::string body) const {
    body.resize((body.size() + 3) / 4 * 4);
    const std::string length = number(static_cast<std::uint32_t>(body.size() + 12));
    return number(type) + length + body + length;
  }
  std::string section() const {
    return block(0x0a0d0d0a, number(std::uint32_t{0x1a2b3c4d}) + number(std::uint16_t{1}) +
                                 number(std::uint16_t{0}) + number(std::int64_t{-1}));
  }
  std::string option(unsigned code, std::string value) const {
    const auto length = static_cast<std::uint16_t>(value.size());
    value.resize((value.size() + 3) / 4 * 4);
    return number(static_cast<std::uint16_t>(code)) + number(length) + value;
  }
  std::string interface(unsigned link, std::uint32_t snap = 0,
                        const std::string& options = {}) const {
    return block(1, number(static_cast<std::uint16_t>(link)) + number(std::uint16_t{0}) +
                        number(snap) + options);
  }
  std::string packet(std::uint32_t interface, std::uint64_t units, const std::string& data,
                     std::uint32_t captured, std::uint32_t wire = 99) const {
    return block(6, number(interface) + number(static_cast<std::uint32_t>(units >> 32)) +
                        number(static_cast<std::uint32_t>(units)) + number(captured) +
                        number(wire) + data);
  }
  std::string packet(std::uint32_t interface, std::uint64_t units, const std::string& data) const {
    return packet(interface, units, data, static_cast<std::uint32_t>(data.size()));
  }

 private:
  bool swapped_;
};

/// Returns a line for each packet, and one for the error if the file breaks.
std::vector<std::string> read(std::string bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      ::fmemopen(bytes.data(), bytes.size(), "rb"), std::fclose);
  PcapngReader reader(file.get());
  PcapngReader::Packet packet;
  std::vector<std::string> lines;
  for (;;) {
    const auto more = reader.next(packet);
    if (!more) {
      EXPECT_EQ(more.error().kind, Error::Kind::unreadable);
      lines.push_back("! " + more.error().message);
      return lines;
    }
    if (!*more) return lines;
    lines.push_back(
        std::to_string(packet.link_type) + " on " + std::to_string(packet.interface) + " at " +
        (packet.time_ns ? std::to_string(*packet.time_ns) : "?") + " " +
        std::string(reinterpret_cast<const char*>(packet.data.data()), packet.data.size()) + "/" +
        std::to_string(packet.wire_length));
  }
}

using Lines = std::vector<std::string>;

TEST(PcapngReader, InterfacesOfAllKindsInEitherByteOrder) {
  for (const bool swapped : {false, true}) {
    const Blocks b(swapped);
    EXPECT_EQ(
        read(b.section() + b.interface(1, 65535) + b.packet(0, 7, "first") + b.interface(101, 96) +
             b.packet(1, 8, "second") + b.block(5, "statistics, passed over") + b.packet(0, 9, "")),
        (Lines{"1 on 0 at 7000 first/99", "101 on 1 at 8000 second/99", "1 on 0 at 9000 /99"}));
  }
}

TEST(PcapngReader, Resolutions) {
  const Blocks b;
  const auto time_of = [&b](const std::string& options, std::uint64_t units) {
    return read(b.section() + b.interface(1, 0, options) + b.packet(0, units, "x"));
  };
  const auto at = [](std::uint64_t ns) {
    return Lines{"1 on 0 at " + std::to_string(ns) + " x/99"};
  };
  const auto resolution = [&b](unsigned value) {
    return b.option(9, std::string(1, static_cast<char>(value)));
  };
  EXPECT_EQ(time_of(resolution(0), 5), at(5'000'000'000));
  EXPECT_EQ(time_of(resolution(9), 5), at(5));
  EXPECT_EQ(time_of(resolution(12), 5'999), at(5));
  EXPECT_EQ(time_of(resolution(19), UINT64_MAX), at(1'844'674'407));
  EXPECT_EQ(time_of(resolution(127), UINT64_MAX), at(0));
  EXPECT_EQ(time_of(resolution(0x80), 5), at(5'000'000'000));
  EXPECT_EQ(time_of(resolution(0x80 + 10), 1536), at(1'500'000'000));
  EXPECT_EQ(time_of(resolution(0x80 + 63), UINT64_C(1) << 63), at(1'000'000'000));
  EXPECT_EQ(time_of(resolution(0xff), UINT64_MAX), at(0));
  EXPECT_EQ(time_of(b.option(14, b.number(std::int64_t{-3})), 5'000'000), at(2'000'000'000));
  // A time out of range becomes the nearest in range; options behind the last are ignored.
  EXPECT_EQ(time_of(b.option(14, b.number(std::int64_t{-9})), 5'000'000), at(0));
  EXPECT_EQ(time_of(resolution(0), UINT64_MAX), at(INT64_MAX));
  EXPECT_EQ(time_of(b.option(14, b.number(INT64_MIN)), 1), at(0));
  EXPECT_EQ(time_of(b.option(14, b.number(INT64_MAX)), UINT64_MAX), at(INT64_MAX));
  EXPECT_EQ(time_of(b.option(2, "lo") + b.option(0, "") + resolution(0), 5), at(5'000));
}

TEST(PcapngReader, SectionsBeginAnew) {
  const Blocks b;
  const Blocks swapped(true);
  const std::string first = b.section() + b.interface(1) + b.interface(101) + b.packet(1, 1, "a");
  EXPECT_EQ(read(first + swapped.section() + swapped.interface(113) + swapped.packet(0, 2, "b")),
            (Lines{"101 on 1 at 1000 a/99", "113 on 2 at 2000 b/99"}));
  EXPECT_EQ(read(first + b.section() + b.packet(0, 2, "b")).back(),
            "! a packet of interface 0, which no block describes");
}

TEST(PcapngReader, OlderBlocks) {
  const Blocks b;
  const std::string begin = b.section() + b.interface(1, 4) + b.interface(101);
  const std::string old = b.number(std::uint16_t{1}) + b.number(std::uint16_t{7}) +
                          b.number(std::uint32_t{0}) + b.number(std::uint32_t{5}) +
                          b.number(std::uint32_t{3}) + b.number(std::uint32_t{60}) + "old";
  EXPECT_EQ(read(begin + b.block(2, old)), Lines{"101 on 1 at 5000 old/60"});
  EXPECT_EQ(read(begin + b.block(3, b.number(std::uint32_t{3}) + "abc") +
                 b.block(3, b.number(std::uint32_t{60}) + "abcd")),
            (Lines{"1 on 0 at ? abc/3", "1 on 0 at ? abcd/60"}));
  EXPECT_EQ(read(b.section() + b.block(3, b.number(std::uint32_t{3}) + "abc")).front(),
            "! a packet of interface 0, which no block describes");
}

TEST(PcapngReader, LengthsThatLie) {
  const Blocks b;
  const std::string begin = b.section() + b.interface(1);
  const auto breaks = [&begin](const std::string& rest) {
    const auto lines = read(begin + rest);
    return lines.size() == 1 && lines[0].starts_with("! ") ? lines[0].substr(2) : "no break";
  };
  EXPECT_EQ(breaks(b.packet(0, 1, "abcd", 5)), "a packet of 5 bytes, more than its block has");
  EXPECT_EQ(breaks(b.packet(0, 1, "abcd", UINT32_MAX)),
            "a packet of 4294967295 bytes, more than its block has");
  EXPECT_EQ(breaks(b.block(3, b.number(std::uint32_t{9}) + "abcd")),
            "a packet of 9 bytes, more than its block has");
  EXPECT_EQ(breaks(b.block(6, "short")), "a packet's block that is too short");
  EXPECT_EQ(breaks(b.block(3, "")), "a packet's block that is too short");
  EXPECT_EQ(breaks(b.block(1, "sho")), "an interface's description that is too short");
  EXPECT_EQ(
      breaks(b.interface(1, 0, b.number(std::uint16_t{2}) + b.number(std::uint16_t{9}) + "abcd")),
      "an option that is longer than its block");
  EXPECT_EQ(breaks(b.interface(1, 0, b.option(9, "ab"))), "a time resolution of 2 bytes, not 1");
  EXPECT_EQ(breaks(b.interface(1, 0, b.option(14, "abcd"))), "a time offset of 4 bytes, not 8");
  const auto length = [&b](std::uint32_t type, std::uint32_t bytes) {
    return b.number(type) + b.number(bytes) + std::string(64, 'x');
  };
  EXPECT_EQ(breaks(length(6, 0)), "a block with the impossible length 0");
  EXPECT_EQ(breaks(length(6, 33)), "a block with the impossible length 33");
  EXPECT_EQ(breaks(length(6, PcapngReader::kLargestBlock + 4)),
            "a block of 16777220 bytes; at most 16777216 can be read");
  EXPECT_EQ(breaks(length(6, 1000)), "cut short");
  EXPECT_EQ(breaks(length(77, 0xfffffff0)), "cut short");
  EXPECT_EQ(breaks(b.block(77, "ab") + length(77, 44)), "a block whose two lengths differ");
}

TEST(PcapngReader, NoPcapng) {
  const Blocks b;
  EXPECT_EQ(read(b.interface(1)), Lines{"! the file does not begin with a section header"});
  EXPECT_EQ(read(b.number(std::uint32_t{0x0a0d0d0a}) + std::string(60, 'x')),
            Lines{"! a section header with a wrong byte-order magic"});
  EXPECT_EQ(read("\n"), Lines{"! cut short"});
  std::string version = b.section();
  version[12] = 2;
  EXPECT_EQ(read(version), Lines{"! pcapng version 2.0: only version 1 can be read"});
  EXPECT_TRUE(read(b.section()).empty());
}

// At any cut, the whole packets before the cut are read.
TEST(PcapngReader, CutShort) {
  const Blocks b;
  const std::string begin = b.section() + b.interface(1);
  const std::string whole = begin + b.packet(0, 1, "one") + b.packet(0, 2, "two");
  for (std::size_t cut = begin.size() + 1; cut < whole.size(); ++cut) {
    const auto lines = read(whole.substr(0, cut));
    const bool between = cut == begin.size() + (whole.size() - begin.size()) / 2;
    EXPECT_EQ(lines.back() == "! cut short", !between) << cut;
    EXPECT_EQ(lines.size(),
              (cut * 2 >= whole.size() + begin.size() ? 1U : 0U) + (between ? 0U : 1U))
        << cut;
  }
}

}  // namespace
}  // namespace millrace
