#include "port/replay_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "port/test_files.h"

namespace millrace {
namespace {

using test::Directory;
constexpr std::uint64_t kMs = 1'000'000;

ReplayPort port_over(const Capture& capture, const ReplayOptions& options,
                     CaptureOutput* output = nullptr,
                     std::optional<CapturePart> part = std::nullopt) {
  auto port = ReplayPort::create(capture, options, output, std::move(part));
  EXPECT_TRUE(port.has_value());
  return std::move(*port);
}

struct Seen {
  std::uint32_t now_ms;
  unsigned size;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Returns each burst's time and number of packets.
std::vector<Seen> bursts(const Capture& capture, const ReplayOptions& options,
                         std::optional<CapturePart> part = std::nullopt) {
  ReplayPort port = port_over(capture, options, nullptr, std::move(part));
  std::vector<Seen> all;
  Burst burst;
  while (port.receive(burst)) all.push_back({burst.now.ms, burst.size});
  EXPECT_FALSE(port.receive(burst));
  return all;
}

Capture capture_at_ms(std::vector<std::uint64_t> times) {
  for (auto& t : times) t = test::kStart + t * kMs;
  return test::capture_at(times);
}

TEST(ReplayPort, OffersEveryPacketInOrder) {
  const Capture capture = test::capture_at(std::vector<std::uint64_t>(150, test::kStart));
  for (const unsigned size : {1U, 7U, 32U, 64U}) {
    ReplayPort port = port_over(capture, {.burst = size});
    Burst burst;
    std::size_t next = 0;
    while (port.receive(burst)) {
      ASSERT_LE(burst.size, size);
      for (unsigned i = 0; i < burst.size; ++i, ++next) {
        const auto expected = capture.packet(next);
        ASSERT_EQ(burst.handle[i], next);
        ASSERT_EQ(burst.wire_length[i], expected.wire_length);
        ASSERT_TRUE(
            std::ranges::equal(std::span(burst.data[i], burst.length[i]), expected.bytes()));
      }
    }
    EXPECT_EQ(next, capture.size());
  }
}

TEST(ReplayPort, GivesAsManyAsItIsAskedFor) {
  const Capture capture =
      test::capture_at({test::kStart, test::kStart + kMs, test::kStart + 900 * kMs});
  ReplayPort port = port_over(capture, {.burst = 32, .loops = 2});
  Burst burst;
  burst.now = Tick{17};
  std::vector<std::vector<Handle>> seen;
  for (const unsigned most : {2U, 0U, 64U, 1U, 2U, 1U}) {
    if (!port.receive_up_to(burst, most)) break;
    seen.emplace_back(burst.handle.begin(), burst.handle.begin() + burst.size);
  }
  constexpr Handle kSecond = Handle{1} << 32;
  EXPECT_EQ(seen, (std::vector<std::vector<Handle>>{
                      {0, 1}, {}, {2}, {kSecond}, {kSecond + 1, kSecond + 2}}));
  EXPECT_EQ(burst.size, 0U);
  EXPECT_EQ(burst.now.ms, 17U);
}

TEST(ReplayPort, MemoryLastsForTheBurstsInFlight) {
  const Capture capture = test::capture_at(std::vector<std::uint64_t>(60, test::kStart));
  ReplayPort port = port_over(capture, {.burst = 10});
  std::array<Burst, kBurstsInFlight> flight;
  for (auto& burst : flight) {
    ASSERT_TRUE(port.receive(burst));
    for (unsigned i = 0; i < burst.size; ++i) {
      std::fill_n(burst.data[i] - ReplayPort::kHeadroom, ReplayPort::kHeadroom, std::byte{0xee});
    }
  }
  for (const auto& burst : flight) {
    for (unsigned i = 0; i < burst.size; ++i) {
      ASSERT_TRUE(std::ranges::equal(std::span(burst.data[i], burst.length[i]),
                                     capture.packet(burst.handle[i]).bytes()));
    }
  }
}

TEST(ReplayPort, NeverWritesTheCapture) {
  const Capture capture = test::capture_at({test::kStart});
  ReplayPort port = port_over(capture, {});
  Burst burst;
  ASSERT_TRUE(port.receive(burst));
  std::fill_n(burst.data[0], burst.length[0], std::byte{});
  EXPECT_TRUE(std::ranges::equal(capture.packet(0).bytes(), test::numbered_bytes(60, 0)));
}

TEST(ReplayPort, TimeCutsBursts) {
  const Capture capture = capture_at_ms({0, 4, 10, 11, 21, 22, 507});
  EXPECT_EQ(bursts(capture, {}), (std::vector<Seen>{{0, 2}, {10, 2}, {20, 2}, {500, 1}}));
  EXPECT_EQ(bursts(capture, {.step_ms = 1}).size(), 7U);
  EXPECT_EQ(bursts(capture, {.step_ms = 1000}), (std::vector<Seen>{{0, 7}}));
}

TEST(ReplayPort, TimeNeverGoesBack) {
  EXPECT_EQ(bursts(capture_at_ms({100, 50, 300, 120, 310}), {.burst = 1}),
            (std::vector<Seen>{{0, 1}, {0, 1}, {200, 1}, {200, 1}, {210, 1}}));
}

TEST(ReplayPort, TimeGoesOnAfterAStepBack) {
  const std::vector<Seen> seen{{0, 1}, {5000, 2}, {5000, 1}, {5500, 1}, {9000, 1}};
  const Capture capture = capture_at_ms({100'000, 105'000, 1'000, 2'000, 2'500, 6'000});
  EXPECT_EQ(bursts(capture, {}), seen);
  // Time also goes on in every loop, in a port with a part of the capture, and at the capture's
  // end.
  const auto loops = bursts(capture, {.loops = 2});
  EXPECT_EQ(loops.size(), 2 * seen.size());
  EXPECT_EQ(loops.back(), (Seen{9000 + 9000 + 1800, 1}));
  EXPECT_EQ(bursts(capture, {}, CapturePart{0, {0, 2, 4}}),
            (std::vector<Seen>{{0, 2}, {5500, 1}, {9000, 0}}));
}

TEST(ReplayPort, ForgetsAStepAheadThatIsTakenBack) {
  EXPECT_EQ(bursts(capture_at_ms({100, 1'000'000'000'000, 110, 120}), {}),
            (std::vector<Seen>{{0, 1}, {0, 1}, {10, 1}, {20, 1}}));
}

TEST(ReplayPort, BurstsAreOfOneLinkType) {
  Capture capture(CaptureFormat{{1, 12, 113}, 300, false});
  constexpr std::array<unsigned, 9> kLinks{0, 0, 1, 1, 1, 0, 2, 1, 1};
  for (const unsigned link : kLinks)
    ASSERT_TRUE(capture.append(test::kStart, 60, test::numbered_bytes(60, 1), link).has_value());
  const auto types = [&capture](std::optional<CapturePart> part, unsigned most) {
    ReplayPort port = port_over(capture, {.burst = most}, nullptr, std::move(part));
    std::vector<std::pair<unsigned, LinkType>> all;
    Burst burst;
    while (port.receive(burst)) {
      if (burst.size > 0) all.emplace_back(burst.size, port.link_type());
    }
    return all;
  };
  using enum LinkType;
  using Types = std::vector<std::pair<unsigned, LinkType>>;
  EXPECT_EQ(types({}, 64),
            (Types{{2, ethernet}, {3, raw_ip}, {1, ethernet}, {1, linux_cooked}, {2, raw_ip}}));
  EXPECT_EQ(
      types({}, 2),
      (Types{
          {2, ethernet}, {2, raw_ip}, {1, raw_ip}, {1, ethernet}, {1, linux_cooked}, {2, raw_ip}}));
  EXPECT_EQ(types(CapturePart{0, {0, 5, 6, 8}}, 64),
            (Types{{2, ethernet}, {1, linux_cooked}, {1, raw_ip}}));
}

// With a span of 30 ms and an average gap of 10 ms, each loop begins 40 ms after the previous one.
TEST(ReplayPort, LoopsAdvanceTime) {
  EXPECT_EQ(bursts(capture_at_ms({0, 0, 10, 30}), {.loops = 3, .step_ms = 5}),
            (std::vector<Seen>{
                {0, 2}, {10, 1}, {30, 1}, {40, 2}, {50, 1}, {70, 1}, {80, 2}, {90, 1}, {110, 1}}));
}

TEST(ReplayPort, LongGapsPassInEmptyBursts) {
  const auto step = ReplayPort::kLongestStepMs;
  const auto seen = bursts(capture_at_ms({0, 2 * step + 12}), {});
  const auto ms = [](std::uint64_t t) { return static_cast<std::uint32_t>(t); };
  EXPECT_EQ(seen,
            (std::vector<Seen>{{0, 1}, {ms(step), 0}, {ms(2 * step), 0}, {ms(2 * step + 12), 1}}));
}

TEST(ReplayPort, NothingInNothingOut) {
  EXPECT_TRUE(bursts(Capture(CaptureFormat{}), {.loops = 5}).empty());
}

TEST(ReplayPort, WallClockDoesNotCut) {
  const Capture capture = capture_at_ms({0, 5000, 100000});
  ReplayPort port = port_over(capture, {.clock = Clock::wall});
  Burst burst;
  ASSERT_TRUE(port.receive(burst));
  EXPECT_EQ(burst.size, 3U);
  EXPECT_EQ(burst.now.ms, 0U);
}

TEST(ReplayPort, StopsWhenTold) {
  const Capture capture = capture_at_ms({0, 100, 200});
  std::atomic<bool> stop = false;
  ReplayPort port = port_over(capture, {.stop = &stop});
  Burst burst;
  ASSERT_TRUE(port.receive(burst));
  EXPECT_FALSE(port.stopped());
  stop = true;
  EXPECT_FALSE(port.receive(burst));
  EXPECT_TRUE(port.stopped());
}

TEST(ReplayPort, RefusesOptionsOutOfRange) {
  const Capture capture = capture_at_ms({0});
  const auto port = ReplayPort::create(capture, {.burst = 65, .loops = 0});
  ASSERT_FALSE(port.has_value());
  EXPECT_EQ(port.error().kind, Error::Kind::usage);
  EXPECT_NE(port.error().message.find("burst"), std::string::npos);
  EXPECT_NE(port.error().message.find("loops"), std::string::npos);
  EXPECT_FALSE(ReplayPort::create(capture, {.burst = 0}).has_value());
  EXPECT_FALSE(ReplayPort::create(capture, {.step_ms = 0}).has_value());
  EXPECT_FALSE(ReplayPort::create(capture, {.in_flight = kBurstsInFlight - 1}).has_value());
}

// A damaged file that spans 1970 to 2023: five loops fit into 64 bits of nanoseconds, six do not.
TEST(ReplayPort, RefusesLoopsBeyondTheEndOfTime) {
  const Capture capture = test::capture_at({0, test::kStart});
  const auto port = ReplayPort::create(capture, {.loops = 1'000'000});
  ASSERT_FALSE(port.has_value());
  EXPECT_EQ(port.error().kind, Error::Kind::usage);
  EXPECT_NE(port.error().message.find("choose 5 or fewer"), std::string::npos)
      << port.error().message;
  EXPECT_FALSE(ReplayPort::create(capture, {.loops = 6}).has_value());
  EXPECT_EQ(bursts(capture, {.burst = 1, .loops = 5}).back().size, 1U);
  const Capture instant = test::capture_at({0});  // a loop takes 1 ns
  EXPECT_TRUE(ReplayPort::create(instant, {.loops = UINT32_MAX}).has_value());
  // With the wall clock the capture's times matter only if they are written.
  EXPECT_TRUE(ReplayPort::create(capture, {.loops = 1'000'000, .clock = Clock::wall}).has_value());
  CaptureOutput output(*CaptureWriter::create("/dev/null", {}), 1);
  EXPECT_FALSE(
      ReplayPort::create(capture, {.loops = 1'000'000, .clock = Clock::wall}, &output).has_value());
}

/// Forwards every packet, and writes the output to `path`.
void forward_all(const Capture& capture, const ReplayOptions& options, const std::string& path) {
  auto writer = CaptureWriter::create(path, capture.format());
  ASSERT_TRUE(writer.has_value());
  CaptureOutput output(std::move(*writer), 1);
  ReplayPort port = port_over(capture, options, &output);
  Burst burst;
  while (port.receive(burst)) port.send(burst, all_of(burst));
  port.finish();
  ASSERT_TRUE(output.finish().has_value());
}

TEST(ReplayPort, UntouchedPacketsComeOutByteIdentical) {
  const Directory directory;
  Capture capture({{1}, 3000, false});
  for (unsigned i = 0; i < 200; ++i) {
    const auto bytes = test::numbered_bytes(i * 13 % 1600, i);  // some longer than what is offered
    // Some wire lengths are below the captured length; they stay unchanged.
    ASSERT_TRUE(capture.append(test::kStart + i * kMs, i * 11, bytes).has_value());
  }
  test::save(capture, directory / "in");
  forward_all(capture, {}, directory / "out");
  EXPECT_EQ(test::read_file(directory / "in"), test::read_file(directory / "out"));
}

TEST(ReplayPort, OffersWireLengthsThatAreNoLie) {
  Capture capture({});
  ASSERT_TRUE(capture.append(test::kStart, 3, test::numbered_bytes(1000, 1)).has_value());
  ReplayPort port = port_over(capture, {});
  Burst burst;
  ASSERT_TRUE(port.receive(burst));
  EXPECT_EQ(burst.length[0], ReplayPort::kOffered);
  EXPECT_EQ(burst.wire_length[0], ReplayPort::kOffered);
}

TEST(ReplayPort, PartsTogetherAreTheWhole) {
  const Capture capture = capture_at_ms({0, 4, 10, 11, 21, 22, 507});
  EXPECT_EQ(bursts(capture, {.loops = 2}, CapturePart{0, {1, 3}}),
            (std::vector<Seen>{{0, 1}, {10, 1}, {590, 1}, {600, 1}, {1090, 0}}));
  EXPECT_EQ(bursts(capture, {}, CapturePart{1, {}}), (std::vector<Seen>{{500, 0}}));
  EXPECT_TRUE(bursts(capture, {.clock = Clock::wall}, CapturePart{1, {}}).empty());
}

// Three ports write one file together, and one port writes another file: both files are the same.
TEST(ReplayPort, PartsLeaveInTheOrderOfTheWhole) {
  const Directory directory;
  Capture capture({});
  for (unsigned i = 0; i < 20000; ++i)
    ASSERT_TRUE(capture.append(test::kStart + i, 60, test::numbered_bytes(60, i)).has_value());
  forward_all(capture, {.loops = 2}, directory / "one");
  std::array<CapturePart, 3> parts{CapturePart{0, {}}, CapturePart{1, {}}, CapturePart{2, {}}};
  for (std::uint32_t i = 0; i < capture.size(); ++i) {
    // Long runs of one part's packets, so that ports run far ahead.
    parts[i / 7000 % 2 == 0 ? i % 2 : 0].positions.push_back(i);
  }
  auto writer = CaptureWriter::create(directory / "three", capture.format());
  CaptureOutput output(std::move(*writer), 3);
  std::vector<std::jthread> threads;
  for (const auto& part : parts) {
    threads.emplace_back([&capture, &output, &part] {
      ReplayPort port = port_over(capture, {.loops = 2}, &output, part);
      Burst burst;
      while (port.receive(burst)) port.send(burst, all_of(burst));
      port.finish();
    });
  }
  threads.clear();
  ASSERT_TRUE(output.finish().has_value());
  EXPECT_EQ(test::read_file(directory / "one"), test::read_file(directory / "three"));
}

TEST(ReplayPort, LoopsAdvanceTheTimestampsOnTheWayOut) {
  const Directory directory;
  forward_all(capture_at_ms({0, 10}), {.loops = 2}, directory / "out");
  const auto out = Capture::load(directory / "out");
  ASSERT_EQ(out->size(), 4U);
  for (unsigned i = 0; i < 4; ++i)
    EXPECT_EQ(out->packet(i).timestamp_ns, test::kStart + i * 10 * kMs);
}

TEST(ReplayPort, SendsWhatIsForwardedAsItIsThen) {
  const Directory directory;
  Capture capture({});
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_TRUE(capture.append(test::kStart, 2000, test::numbered_bytes(600, i)).has_value());
  }
  auto writer = CaptureWriter::create(directory / "out", capture.format());
  CaptureOutput output(std::move(*writer), 1);
  ReplayPort port = port_over(capture, {}, &output);
  Burst burst;
  ASSERT_TRUE(port.receive(burst));
  burst.data[2][0] = std::byte{0x42};
  burst.data[2] -= 8;  // a function puts a header of 8 bytes in front
  burst.length[2] += 8;
  burst.wire_length[2] += 8;
  port.send(burst, 0b101);
  EXPECT_GT(port.output_ns(), 0U);
  port.finish();
  ASSERT_TRUE(output.finish().has_value());

  const auto out = Capture::load(directory / "out");
  ASSERT_EQ(out->size(), 2U);
  EXPECT_TRUE(std::ranges::equal(out->packet(0).bytes(), capture.packet(0).bytes()));
  EXPECT_EQ(out->packet(1).captured, 608U);
  EXPECT_EQ(out->packet(1).wire_length, 2008U);
  EXPECT_EQ(out->packet(1).data[8], std::byte{0x42});
  EXPECT_TRUE(
      std::ranges::equal(out->packet(1).bytes().subspan(9), capture.packet(2).bytes().subspan(1)));
}

TEST(ReplayPort, EndsEarlyWhenTheOutputFails) {
  Capture capture({});
  for (unsigned i = 0; i < 5000; ++i) {
    ASSERT_TRUE(capture.append(test::kStart, 1000, test::numbered_bytes(1000, i)).has_value());
  }
  auto writer = CaptureWriter::create("/dev/full", {});
  CaptureOutput output(std::move(*writer), 1);
  ReplayPort port = port_over(capture, {.loops = 100}, &output);
  Burst burst;
  std::size_t packets = 0;
  while (port.receive(burst)) {
    packets += burst.size;
    port.send(burst, all_of(burst));
  }
  EXPECT_LT(packets, 5000U);
  port.finish();
  EXPECT_EQ(output.finish().error().kind, Error::Kind::failed);
}

}  // namespace
}  // namespace millrace
