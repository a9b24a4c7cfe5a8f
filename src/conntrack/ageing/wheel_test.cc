#include "conntrack/ageing/wheel.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "conntrack/test_support.h"

namespace millrace {
namespace {

/// Deadlines that a test moves as packets would.
struct Deadlines final : Connections {
  explicit Deadlines(std::size_t ids, Tick all = {}) : at(ids, all) {}
  Tick deadline(ConnId id) const override { return at[index(id)]; }
  void prefetch(ConnId) const override {}
  void expire(ConnId id) override { expired.push_back(id); }

  std::vector<Tick> at;
  std::vector<ConnId> expired;
};

std::unique_ptr<Ageing> make(std::size_t ids, std::uint32_t interval_ms) {
  auto wheels = Wheel::create({ids, interval_ms, Pages::small}, 1);
  EXPECT_TRUE(wheels.has_value());
  return std::move(wheels->front());
}

TEST(Wheel, FiresWithinOneIntervalAfterTheDeadline) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (const std::uint32_t interval : {1U, 10U, 1000U}) {
    constexpr std::uint32_t kIds = 500;
    auto wheel = make(kIds, interval);
    Deadlines deadlines(kIds);
    std::size_t left = kIds;
    Tick now{0xffff0000};
    for (std::uint32_t id = 0; id < kIds; ++id) {
      deadlines.at[id] =
          now + static_cast<std::uint32_t>(
                    random() % (id % 2 == 0 ? 100 * interval : 3 * Wheel::kSlots * interval));
      wheel->born(ConnId{id}, now, deadlines.at[id]);
    }
    for (int moved = 0; left > 0; ++moved) {
      ASSERT_LT(moved, 1'000'000);
      now = now + 1 + static_cast<std::uint32_t>(random() % interval);
      const std::uint32_t lucky = static_cast<std::uint32_t>(random() % kIds);
      if (moved < 1000) deadlines.at[lucky] = deadlines.at[lucky] + 50;  // a packet came
      while (!wheel->sweep(now, 5, deadlines)) {
      }
      for (const ConnId id : std::exchange(deadlines.expired, {})) {
        EXPECT_GE(now - deadlines.at[index(id)], 0);
        EXPECT_LE(now - deadlines.at[index(id)], static_cast<std::int32_t>(3 * interval));
        --left;
      }
    }
    const auto ok = wheel->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }
}

TEST(Wheel, NeverLooksAtMoreThanItsBudget) {
  auto wheel = make(1000, 10);
  Deadlines deadlines(1000, Tick{100});
  for (std::uint32_t id = 0; id < 1000; ++id) wheel->born(ConnId{id}, Tick{0}, Tick{100});
  for (bool done = false; !done;) {
    const std::size_t before = deadlines.expired.size();
    done = wheel->sweep(Tick{1000}, 64, deadlines);
    EXPECT_LE(deadlines.expired.size() - before, 64U);
  }
  EXPECT_EQ(deadlines.expired.size(), 1000U);
}

TEST(Wheel, WhoIsGoneDoesNotFire) {
  auto wheel = make(3, 10);
  Deadlines deadlines(3, Tick{50});
  for (std::uint32_t id = 0; id < 3; ++id) wheel->born(ConnId{id}, Tick{0}, Tick{50});
  wheel->gone(ConnId{1});
  wheel->gone(ConnId{1});  // told twice does no harm
  while (!wheel->sweep(Tick{100}, 64, deadlines)) {
  }
  EXPECT_EQ(deadlines.expired, (std::vector<ConnId>{ConnId{0}, ConnId{2}}));
}

// Years in steps of days, as captures with absurd timestamps have them: nothing is missed, and time
// is not counted through slot by slot.
TEST(Wheel, LongSleepsFireEverything) {
  auto wheel = make(300, 1);
  Deadlines deadlines(300);
  Tick now{0};
  for (int sleep = 0; sleep < 2000; ++sleep) {
    for (std::uint32_t id = 0; id < 300; ++id) {
      deadlines.at[id] = now + id * id * 4000;  // up to four days
      wheel->born(ConnId{id}, now, deadlines.at[id]);
    }
    now = now + (1U << 30);
    while (!wheel->sweep(now, 64, deadlines)) {
    }
    ASSERT_EQ(std::exchange(deadlines.expired, {}).size(), 300U) << sleep;
  }
}

}  // namespace
}  // namespace millrace
