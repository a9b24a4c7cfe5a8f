// One suite for every ageing scheme that ends connections.
#include "conntrack/ageing/ageing.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/ageing/lazy.h"
#include "conntrack/ageing/scan.h"
#include "conntrack/ageing/wheel.h"
#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"

namespace millrace {
namespace {

/// Connections with deadlines that a test moves as packets would.
struct Deadlines final : Connections {
  explicit Deadlines(std::size_t ids, Tick all = {}) : at(ids, all) {}
  void deadlines(std::span<const ConnId> ids, std::span<Tick> deadlines) const override {
    looks += ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) deadlines[i] = at[index(ids[i])];
  }
  void expire(std::span<const ConnId> ids) override {
    expired.insert(expired.end(), ids.begin(), ids.end());
  }

  std::vector<Tick> at;
  std::vector<ConnId> expired;
  mutable std::size_t looks = 0;
};

template <class S>
class AgeingTest : public testing::Test {
 protected:
  static std::unique_ptr<Ageing> make(std::size_t ids, std::uint32_t interval_ms) {
    auto made = S::create({ids, ids, interval_ms, Pages::small}, 1);
    EXPECT_TRUE(made.has_value());
    return std::move(made->front());
  }
  static void sweep_all(Ageing& ageing, Tick now, Deadlines& deadlines) {
    while (!ageing.sweep(now, 5, deadlines)) {
    }
  }
  static void check(const Ageing& ageing) {
    const auto ok = ageing.check_invariants();
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }
};
struct Names {
  template <class S>
  static std::string GetName(int) {
    return std::string(S::kName);
  }
};
using Schemes = testing::Types<Wheel, Scan, Lazy>;
TYPED_TEST_SUITE(AgeingTest, Schemes, Names);

TYPED_TEST(AgeingTest, EndsWhatIsDueWithinItsSlack) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (const std::uint32_t interval : {1U, 10U, 1000U}) {
    constexpr std::uint32_t kIds = 500;
    auto ageing = this->make(kIds, interval);
    Deadlines deadlines(kIds);
    std::vector<bool> is_there(kIds, true);
    std::size_t left = kIds;
    Tick now{0xffff0000};
    for (std::uint32_t id = 0; id < kIds; ++id) {
      deadlines.at[id] =
          now + static_cast<std::uint32_t>(
                    random() % (id % 2 == 0 ? 100 * interval : 3 * Wheel::kSlots * interval));
      ageing->born(ConnId{id}, now, deadlines.at[id]);
    }
    for (int moved = 0; left > 0; ++moved) {
      ASSERT_LT(moved, 1'000'000);
      now = now + 1 + static_cast<std::uint32_t>(random() % interval);
      const std::uint32_t lucky = static_cast<std::uint32_t>(random() % kIds);
      if (moved < 1000) deadlines.at[lucky] = deadlines.at[lucky] + 50;  // as by a packet
      const std::uint32_t unlucky = static_cast<std::uint32_t>(random() % kIds);
      const std::int32_t longest = deadlines.at[unlucky] - now;
      if (is_there[unlucky] && longest > 0) {  // as by a new state
        deadlines.at[unlucky] =
            now + static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(longest));
        ageing->sooner(ConnId{unlucky}, now, deadlines.at[unlucky]);
      }
      this->sweep_all(*ageing, now, deadlines);
      for (const ConnId id : std::exchange(deadlines.expired, {})) {
        is_there[index(id)] = false;
        EXPECT_GE(now - deadlines.at[index(id)], 0);
        EXPECT_LE(now - deadlines.at[index(id)],
                  static_cast<std::int32_t>(TypeParam::slack_ms(interval) + interval));
        --left;
      }
    }
    this->check(*ageing);
  }
}

TYPED_TEST(AgeingTest, NeverLooksAtMoreThanItsBudget) {
  auto ageing = this->make(1000, 10);
  Deadlines deadlines(1000, Tick{100});
  for (std::uint32_t id = 0; id < 1000; ++id) ageing->born(ConnId{id}, Tick{0}, Tick{100});
  for (bool done = false; !done;) {
    deadlines.looks = 0;
    done = ageing->sweep(Tick{100 + TypeParam::slack_ms(10)}, 64, deadlines);
    EXPECT_LE(deadlines.looks, 64U);
  }
  EXPECT_EQ(deadlines.expired.size(), 1000U);
}

TYPED_TEST(AgeingTest, WhoIsGoneDoesNotEnd) {
  auto ageing = this->make(3, 10);
  Deadlines deadlines(3, Tick{50});
  for (std::uint32_t id = 0; id < 3; ++id) ageing->born(ConnId{id}, Tick{0}, Tick{50});
  ageing->gone(ConnId{1});
  this->sweep_all(*ageing, Tick{100 + TypeParam::slack_ms(10)}, deadlines);
  EXPECT_EQ(deadlines.expired, (std::vector<ConnId>{ConnId{0}, ConnId{2}}));
}

// Years pass in steps of 12 days, as in captures with absurd timestamps: no connection is missed,
// and the wheel skips empty slots.
TYPED_TEST(AgeingTest, LongSleepsEndEverything) {
  auto ageing = this->make(300, 1);
  Deadlines deadlines(300);
  Tick now{0};
  for (int sleep = 0; sleep < (kSanitized ? 100 : 2000); ++sleep) {
    for (std::uint32_t id = 0; id < 300; ++id) {
      deadlines.at[id] = now + id * id * 4000;  // up to some four days
      ageing->born(ConnId{id}, now, deadlines.at[id]);
    }
    now = now + (1U << 30);
    this->sweep_all(*ageing, now, deadlines);
    ASSERT_EQ(std::exchange(deadlines.expired, {}).size(), 300U) << sleep;
  }
}

}  // namespace
}  // namespace millrace
