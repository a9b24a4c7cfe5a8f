#include "worker/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "port/replay_port.h"
#include "traffic/generate.h"

namespace millrace {
namespace {

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

  // A wait is counted when it ends: with the next burst.
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
}  // namespace millrace
