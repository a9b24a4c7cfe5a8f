// Tests the rings of logs and their readers: what a reader gets and misses, alone and while a
// worker writes.
#include "function/event_log.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/token_bucket.h"

namespace millrace {
namespace {

struct CountedEvent {
  std::uint64_t time_ns = 0;
  std::uint64_t value = 0;
  std::array<std::uint64_t, 13> copies{};  // of the value: a torn event has different ones
};
using Ring = EventRing<CountedEvent>;
using Log = EventLog<CountedEvent>;

CountedEvent event_with(std::uint64_t value, std::uint64_t time_ns = 0) {
  CountedEvent event{time_ns, value, {}};
  event.copies.fill(value);
  return event;
}

TEST(EventRing, NumbersWhatIsLeftOut) {
  const auto ring = std::make_unique<Ring>();
  Ring::Cursor cursor;
  std::uint64_t missed = 0;
  EXPECT_FALSE(ring->next(cursor, missed));
  ring->write(event_with(1));
  ring->leave_out();
  ring->leave_out();
  EXPECT_EQ(ring->next(cursor, missed)->value, 1U);
  EXPECT_EQ(missed, 0U);
  EXPECT_FALSE(ring->next(cursor, missed)) << "what is left out shows with the next event";
  ring->write(event_with(2));
  EXPECT_EQ(ring->next(cursor, missed)->value, 2U);
  EXPECT_EQ(missed, 2U);
}

TEST(EventRing, KeepsTheNewest) {
  const auto ring = std::make_unique<Ring>();
  Ring::Cursor slow;
  Ring::Cursor new_only = ring->end();
  constexpr std::uint64_t kWritten = Ring::kRoom + 1000;
  for (std::uint64_t n = 1; n <= kWritten; ++n) {
    if (n == 3) ring->leave_out();
    if (n == kWritten) new_only = ring->end();
    ring->write(event_with(n));
  }
  std::uint64_t missed = 0;
  EXPECT_EQ(ring->next(slow, missed)->value, 1001U);
  EXPECT_EQ(missed, 1001U) << "1000 that were overwritten, and one that was left out";
  std::uint64_t last = 1001;
  while (const auto event = ring->next(slow, missed)) {
    EXPECT_EQ(event->value, ++last);
    EXPECT_EQ(missed, 0U);
  }
  EXPECT_EQ(last, kWritten);
  EXPECT_EQ(ring->next(new_only, missed)->value, kWritten);
  EXPECT_EQ(missed, 0U);
}

// Invariants 1 to 3: a reader that is too slow misses events, and knows how many; it sees whole
// events, in order.
TEST(EventRing, IsReadWhileItIsWritten) {
  constexpr std::uint64_t kEvents = 300'000;
  const auto ring = std::make_unique<Ring>();
  std::atomic<unsigned> waiting = 2;
  const auto read = [&](bool is_slow) {
    Ring::Cursor cursor;
    std::uint64_t last = 0;
    std::uint64_t missed_in_all = 0;
    std::uint64_t got = 0;
    --waiting;
    while (last != kEvents) {
      std::uint64_t missed = 0;
      const auto event = ring->next(cursor, missed);
      if (!event) {
        std::this_thread::yield();
        continue;
      }
      for (const std::uint64_t copy : event->copies) ASSERT_EQ(copy, event->value);
      ASSERT_EQ(event->value, last + missed + 1);
      last = event->value;
      missed_in_all += missed;
      if (++got % 1000 == 0 && is_slow) std::this_thread::yield();
    }
    EXPECT_EQ(got + missed_in_all, kEvents);
  };
  std::vector<std::jthread> readers;
  readers.emplace_back(read, false);
  readers.emplace_back(read, true);
  while (waiting != 0) std::this_thread::yield();
  for (std::uint64_t n = 1; n <= kEvents; ++n) {
    // The value is the event's number. The last event is written, so that readers end.
    n % 7 == 0 && n != kEvents ? ring->leave_out() : ring->write(event_with(n));
    if (n % 5000 == 0) std::this_thread::yield();
  }
}

TEST(EventLog, JoinsWorkersByTime) {
  const auto log = std::make_shared<Log>(2);
  log->ring(0).write(event_with(1, 10));
  Log::Reader only_new(log, true);
  Log::Reader all(log, false);
  log->ring(0).write(event_with(2, 30));
  log->ring(1).leave_out();
  log->ring(1).write(event_with(3, 20));
  std::string seen;
  const auto take = [&seen](const CountedEvent& event, unsigned worker, std::uint64_t missed) {
    seen += std::to_string(event.value) + " of " + std::to_string(worker) + " missed " +
            std::to_string(missed) + "\n";
  };
  all.read(100, take);
  EXPECT_EQ(seen, "1 of 0 missed 0\n3 of 1 missed 1\n2 of 0 missed 0\n");
  seen.clear();
  only_new.read(100, take);
  EXPECT_EQ(seen, "3 of 1 missed 1\n2 of 0 missed 0\n");
  seen.clear();
  all.read(100, take);
  only_new.read(100, take);
  EXPECT_EQ(seen, "");
}

TEST(EventLog, BoundsOneReading) {
  const auto log = std::make_shared<Log>(2);
  for (std::uint64_t n = 0; n < 100; ++n) log->ring(0).write(event_with(n));
  Log::Reader reader(log, false);
  std::size_t count = 0;
  const auto take = [&count](const CountedEvent&, unsigned, std::uint64_t) { ++count; };
  reader.read(64, take);
  EXPECT_EQ(count, 32U) << "each worker has a share";
  for (int n = 0; n < 10; ++n) reader.read(64, take);
  EXPECT_EQ(count, 100U);
}

TEST(EventLog, WritesTheTimeInUtc) {
  std::string text;
  begin_event(text, 1'700'000'000'012'999'999U);
  end_event(text, 3, 7);
  EXPECT_EQ(text, "{\"time\":\"2023-11-14T22:13:20.012Z\",\"worker\":3,\"missed\":7}\n");
}

TEST(TokenBucket, ABurstThenTheRateAcrossTheEndOfTicks) {
  TokenBucket bucket;
  const auto passed = [&bucket](std::uint32_t ms) {
    unsigned count = 0;
    while (bucket.allows(700'000, 10, Tick{ms}, true)) ++count;
    return count;
  };
  EXPECT_EQ(passed(0xfffffffd), 10U);
  EXPECT_EQ(passed(2), 7U) << "5 ms later";
  EXPECT_EQ(passed(3), 1U);
  EXPECT_EQ(passed(1000), 10U);
}

}  // namespace
}  // namespace millrace
