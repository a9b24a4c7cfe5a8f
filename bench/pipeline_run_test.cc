#include "bench/pipeline_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/timed_run.h"
#include "function/kinds.h"
#include "parse/parse.h"
#include "parse/test_packets.h"
#include "port/replay_port.h"
#include "port/test_files.h"
#include "traffic/generate.h"

namespace millrace::bench {
namespace {

struct Outcome {
  std::string packets;  ///< the capture file's contents
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t opened = 0;
  std::uint64_t ended = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend void PrintTo(const Outcome& o, std::ostream* to) {
    *to << o.in << " in, " << o.out << " out, " << o.opened << " opened, " << o.ended << " ended";
  }
};

Outcome run(const Capture& capture, unsigned count, bool piped, const char* sharing = "sharded") {
  const LineConfig line{.sharing = sharing,
                        .capacity = 20'000,
                        .capacity_v6 = 20'000,
                        .timeouts = Timeouts::all(3'000),
                        .pages = Pages::small,
                        .secret = Secret::from_seed(1),
                        .catch_up = true};
  auto workers = Workers::create(count, line, default_function());
  EXPECT_TRUE(workers.has_value()) << workers.error().message;
  const test::Directory directory;
  CaptureOutput output(*CaptureWriter::create(directory / "out", capture.format()), count);
  std::vector<ReplayPort> ports;
  auto parts = parts_for(*workers, capture, 2);
  for (CapturePart& part : *parts)
    ports.push_back(
        *ReplayPort::create(capture, {.in_flight = Pipeline::kInFlight}, &output, std::move(part)));
  std::vector<Port*> pointers;
  for (ReplayPort& port : ports) pointers.push_back(&port);
  if (piped) {
    auto pipeline = Pipeline::create(pointers);
    EXPECT_TRUE(pipeline->run(*workers).has_value());
    EXPECT_GT(pipeline->reading_time().elapsed_ns, pipeline->reading_time().waited_ns);
    EXPECT_GT(workers->time(0).elapsed_ns, 0U);
  } else {
    EXPECT_TRUE(workers->run(pointers).has_value());
  }
  EXPECT_TRUE(output.finish().has_value());
  const WorkerCounters counters = workers->counters();
  return {.packets = test::read_file(directory / "out"),
          .in = counters.in.value(),
          .out = counters.out.value(),
          .opened = counters.opened.value(),
          .ended = counters.ended()};
}

TEST(Pipeline, DoesWhatWorkersAloneDo) {
  const auto capture = generate({.connections = 4000, .packets = 40'000, .seed = 5});
  ASSERT_TRUE(capture.has_value());
  const Outcome one = run(*capture, 1, false);
  EXPECT_EQ(one.in, 40'000U);
  EXPECT_GT(one.ended, 0U);
  for (const unsigned count : {1U, 2U, 5U}) EXPECT_EQ(run(*capture, count, true), one) << count;
  EXPECT_EQ(run(*capture, 3, true, "lock-free-race"), one);
}

/// Makes a capture of a TCP packet and an ICMP error about a UDP packet, by IPv4 and by IPv6.
Capture of_every_lane() {
  using namespace test;
  // An ICMP error goes to the sender of the packet that the error quotes.
  const auto error_about = [](unsigned type, Bytes quote, unsigned source, unsigned bytes) {
    std::rotate(quote.begin() + source, quote.begin() + source + bytes,
                quote.begin() + source + 2 * bytes);
    return test::bytes({type}) + zeros(7) + quote;
  };
  const Bytes error4 = error_about(3, ipv4({.protocol = 17}, udp()), 12, 4);
  const Bytes error6 = error_about(1, ipv6({.next = 17}, udp()), 8, 16);
  Capture capture(CaptureFormat{});
  for (const Bytes& packet :
       {ethernet(0x0800) + ipv4({}, tcp()), ethernet(0x0800) + ipv4({.protocol = 1}, error4),
        ethernet(0x86dd) + ipv6({}, tcp()), ethernet(0x86dd) + ipv6({.next = 58}, error6)})
    EXPECT_TRUE(capture.append(kStart, static_cast<std::uint32_t>(packet.size()), packet));
  return capture;
}

template <class K>
void expect_same(const Lane<K>& lane, const Lane<K>& other) {
  ASSERT_EQ(lane.size, 1U);
  ASSERT_EQ(other.size, 1U);
  EXPECT_EQ(lane.packet[0], other.packet[0]);
  EXPECT_EQ(lane.key[0], other.key[0]);
}

TEST(Pipeline, HandsOnWhatTheParserSays) {
  const Capture capture = of_every_lane();
  auto source = ReplayPort::create(capture, {.in_flight = Pipeline::kInFlight});
  auto alone = ReplayPort::create(capture, {});
  ASSERT_TRUE(source.has_value() && alone.has_value());
  auto port = ParsedPort::create(*source);
  ASSERT_TRUE(port.has_value());
  std::optional<detail::Backoff> reader;
  ASSERT_EQ((*port)->feed(reader), ParsedPort::Fed::burst);
  Burst burst;
  ASSERT_TRUE((*port)->receive(burst));
  Burst expected;
  ASSERT_TRUE(alone->receive(expected));
  parse(expected, alone->link_type());
  ASSERT_EQ(burst.size, 4U);
  ASSERT_EQ(expected.size, 4U);
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(burst.handle[i], expected.handle[i]);
    EXPECT_EQ(burst.wire_length[i], expected.wire_length[i]);
    EXPECT_EQ(burst.headers[i].l4, expected.headers[i].l4);
    EXPECT_EQ(burst.headers[i].protocol, expected.headers[i].protocol);
    EXPECT_EQ(burst.verdict[i], expected.verdict[i]);
    ASSERT_EQ(burst.length[i], expected.length[i]);
    EXPECT_TRUE(std::equal(burst.data[i], burst.data[i] + burst.length[i], expected.data[i]));
  }
  for (const unsigned tcp : {0U, 2U}) EXPECT_EQ(burst.signal[tcp], expected.signal[tcp]);
  expect_same(burst.v4, expected.v4);
  expect_same(burst.v6, expected.v6);
  expect_same(burst.quoted_v4, expected.quoted_v4);
  expect_same(burst.quoted_v6, expected.quoted_v6);
}

TEST(Pipeline, WhoHasABurstInHandDoesNotWait) {
  const auto capture = generate({.connections = 10, .packets = 20, .seed = 6});
  ASSERT_TRUE(capture.has_value());
  auto source = ReplayPort::create(*capture, {.in_flight = Pipeline::kInFlight});
  ASSERT_TRUE(source.has_value());
  auto port = ParsedPort::create(*source);
  ASSERT_TRUE(port.has_value());
  std::optional<detail::Backoff> reader;
  ASSERT_EQ((*port)->feed(reader), ParsedPort::Fed::burst);
  Burst held;
  ASSERT_TRUE((*port)->receive(held));
  ASSERT_GT(held.size, 0U);

  // A wait is counted when it ends, with the next burst.
  const auto waits_for_next = [&] {
    const std::uint64_t before = detail::Waiting::sum_ns();
    Burst burst;
    EXPECT_TRUE((*port)->receive(burst));
    EXPECT_EQ(burst.size, 0U);
    std::this_thread::sleep_for(std::chrono::microseconds(10));
    EXPECT_EQ((*port)->feed(reader), ParsedPort::Fed::burst);
    EXPECT_TRUE((*port)->receive(burst));
    (*port)->send(burst, 0);
    return detail::Waiting::sum_ns() > before;
  };
  EXPECT_FALSE(waits_for_next());
  (*port)->send(held, 0);
  EXPECT_TRUE(waits_for_next());
}

}  // namespace
}  // namespace millrace::bench
