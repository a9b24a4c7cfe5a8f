// One suite for every combination of table and ageing scheme, with an oracle that expires
// connections; compiled once for each table. tests/sharing_test.cc tests on whole lines how workers
// share tables.
#include "conntrack/tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "core/sanitizers.h"

namespace millrace {
namespace {

using test::nth_key;
using enum Insertion::Outcome;

#ifdef MILLRACE_COUNTED
static_assert(TableSchemes::kSize == MILLRACE_COUNTED,
              "schemes.h must list one table a line: the build counts these lines");
#endif

using Scheme = TableSchemes::At<MILLRACE_TABLE>;
using K = test::KeyOf<MILLRACE_TABLE>;
using Tracked = Tracker<Scheme::Of, Alone, K>;

constexpr std::uint32_t kTimeoutMs = 1000;
constexpr std::uint32_t kIntervalMs = 10;

/// The properties of an ageing scheme that tests depend on. A value and not a type, so that tests
/// and tracker are not compiled once for each scheme.
struct AgeingTraits {
  std::string name;
  MakeAgeing* create;
  std::uint32_t slack_ms = 0;
  bool ages = false;
  bool leaves_expired = false;
  bool is_punctual = false;

  template <class A>
  static AgeingTraits of() {
    AgeingTraits traits{.name = std::string(A::kName),
                        .create = &A::create,
                        .ages = A::kName != NoAgeing::kName,
                        .leaves_expired = A::kName == Lazy::kName,
                        .is_punctual = A::kName == Wheel::kName};
    if constexpr (A::kName != NoAgeing::kName) traits.slack_ms = A::slack_ms(kIntervalMs);
    return traits;
  }
  template <class... A>
  static std::vector<AgeingTraits> of_all(SchemeList<A...>) {
    return {of<A>()...};
  }
};
void PrintTo(const AgeingTraits& ageing, std::ostream* out) { *out << ageing.name; }

constexpr auto kNobodyEnds = [](ConnId) { ADD_FAILURE() << "a connection was evicted"; };

// The tests of all tables are linked into one program, in which suites need different names.
#define SUITE_OF(place) TrackerTest##place
#define SUITE_AT(place) SUITE_OF(place)
#define TrackerTest SUITE_AT(MILLRACE_TABLE)

/// The suite, for trackers that follow packets (both sides' entries in one table) and for trackers
/// that do not (a table for each side).
class TrackerTest : public testing::TestWithParam<std::tuple<AgeingTraits, bool>> {
 protected:
  Tracked make(std::size_t capacity, bool replies = true,
               std::uint32_t timeout_ms = kTimeoutMs) const {
    TrackerConfig config{.capacity = capacity,
                         .state_bytes = 8,
                         .follows = follows_,
                         .timeouts = Timeouts::all(timeout_ms),
                         .ageing = ageing_.create,
                         .interval_ms = kIntervalMs,
                         .shards = 1,
                         .pages = Pages::small,
                         .secret = Secret::from_seed(test::seed())};
    if (replies) config.reply_state_bytes = 8;
    auto tracker = Tracked::create(config);
    EXPECT_TRUE(tracker.has_value());
    return std::move(*tracker);
  }
  static ConnId find(Tracked& tracker, const K& key, Tick now, bool reply = false) {
    const Hash hash = tracker.hasher()(key);
    ConnId id{};
    tracker.find({&key, 1}, {&hash, 1}, now, {&id, 1}, {}, reply ? Side::reply : Side::originator);
    return id;
  }
  static Insertion open(Tracked& tracker, const K& key, Tick now) {
    return tracker.open(key, tracker.hasher()(key), now, kNobodyEnds);
  }
  static ConnId link(Tracked& tracker, const K& key, Tick now) {
    const std::array<std::byte, 8> state{};
    const Insertion in = tracker.link(key, now, state, kNobodyEnds);
    EXPECT_EQ(in.outcome, inserted);
    return in.id;
  }
  /// Sweeps until nothing is left to do; returns how many connections have ended.
  static std::size_t sweep(Tracked& tracker, Tick now) {
    std::size_t ended = 0;
    while (!tracker.sweep(now, 16, [&](ConnId) { ++ended; })) {
    }
    return ended;
  }
  static void check(const Tracked& tracker) {
    const auto ok = tracker.check_invariants();
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }

  const AgeingTraits ageing_ = std::get<0>(GetParam());
  const bool follows_ = std::get<1>(GetParam());

 private:
  testing::ScopedTrace repeat_{__FILE__, __LINE__, test::repeat()};
};
std::string test_name(const testing::TestParamInfo<std::tuple<AgeingTraits, bool>>& info) {
  const auto& [ageing, follows] = info.param;
  std::string name =
      std::string(Scheme::kName) + "_" + ageing.name + (follows ? "_one_table" : "_two_tables");
  std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Ageing, TrackerTest,
                         testing::Combine(testing::ValuesIn(AgeingTraits::of_all(AgeingSchemes{})),
                                          testing::Bool()),
                         test_name);

/// A tracker and a model of it. Each step changes both, and compares the tracker with the model.
struct Simulation {
  struct Known {
    ConnId id;
    Tick seen;
    std::optional<std::uint64_t> reply;
  };

  const AgeingTraits ageing;
  const bool one_table;
  Tracked tracker;
  Tick now{0xfffff000};  // wraps soon
  std::map<std::uint64_t, Known> live;
  std::map<std::uint64_t, std::uint64_t> owner_of_reply;
  std::uint64_t opened = 0;
  std::uint64_t closed = 0;
  std::uint64_t collided = 0;
  std::uint64_t refused = 0;

  /// True if connection `n` is live and a lookup must find it.
  bool is_met(std::uint64_t n) const {
    const auto known = live.find(n);
    if (known == live.end()) return false;
    return !ageing.leaves_expired ||
           now - known->second.seen < static_cast<std::int32_t>(kTimeoutMs);
  }
  bool reply_is_met(std::uint64_t reply) const {
    const auto owner = owner_of_reply.find(reply);
    return owner != owner_of_reply.end() && is_met(owner->second);
  }

  void forget(std::uint64_t n) {
    if (live.at(n).reply) owner_of_reply.erase(*live.at(n).reply);
    live.erase(n);
    ++closed;
  }

  auto expires() {
    return [this](ConnId id) {
      for (const auto& [n, known] : live) {
        if (known.id != id) continue;
        EXPECT_GE(now - known.seen, static_cast<std::int32_t>(kTimeoutMs)) << "removed too early";
        forget(n);
        return;
      }
      ADD_FAILURE() << "a connection was removed that is not live";
    };
  }

  void find_key(std::uint64_t n, bool reply) {
    const K key = nth_key<K>(n);
    const Hash hash = tracker.hasher()(key);
    ConnId id{};
    const std::uint64_t replies = tracker.find({&key, 1}, {&hash, 1}, now, {&id, 1}, {},
                                               reply ? Side::reply : Side::originator);
    if (one_table) {
      ASSERT_FALSE(is_met(n) && reply_is_met(n));
      reply = reply_is_met(n);
      ASSERT_EQ(replies, reply ? 1U : 0U);
    }
    if (!reply) {
      ASSERT_EQ(id, is_met(n) ? live.at(n).id : ConnId::none);
      if (is_met(n)) live.at(n).seen = now;
      return;
    }
    ASSERT_EQ(id != ConnId::none, reply_is_met(n));
    if (id == ConnId::none) return;
    Known& owner = live.at(owner_of_reply.at(n));
    ASSERT_EQ(tracker.replies().header(id).peer, owner.id);
    owner.seen = now;
  }

  void open_key(std::uint64_t n, std::optional<std::uint64_t> reply) {
    const K key = nth_key<K>(n);
    const bool is_there = is_met(n);
    const bool is_a_reply = one_table && reply_is_met(n);
    const Insertion in = tracker.open(key, tracker.hasher()(key), now, expires());
    if (is_a_reply) {
      ASSERT_EQ(in.outcome, present);
      ASSERT_EQ(tracker.side_of(in.id), Side::reply);
      return;
    }
    if (is_there) {
      ASSERT_EQ(in.outcome, present);
      ASSERT_EQ(in.id, live.at(n).id);
      return;
    }
    if (in.outcome == full) {
      ++refused;
      return;
    }
    ASSERT_EQ(in.outcome, inserted);
    Insertion linked;
    if (reply) {
      const std::array<std::byte, 8> state{};
      const bool reply_is_there =
          reply_is_met(*reply) || (one_table && (is_met(*reply) || *reply == n));
      linked = tracker.link(nth_key<K>(*reply), now, state, expires());
      ASSERT_EQ(linked.outcome == present, reply_is_there);
      if (linked.outcome != inserted) {
        tracker.abandon(in.id);
        collided += linked.outcome == present;
        refused += linked.outcome == full;
        return;
      }
      owner_of_reply[*reply] = n;
    }
    tracker.confirm(in.id, linked.id);
    live[n] = {in.id, now, reply};
    ++opened;
  }

  bool sweep(unsigned budget) { return tracker.sweep(now, budget, expires()); }

  void check_ages() const {
    for (const auto& [n, known] : live) {
      ASSERT_LE(now - known.seen, static_cast<std::int32_t>(kTimeoutMs + ageing.slack_ms))
          << "lived too long";
    }
  }
};

TEST_P(TrackerTest, AgreesWithAnOracleThatExpires) {
  constexpr std::size_t kCapacity = 300;
  std::mt19937_64 random(test::seed());
  Simulation life{ageing_, follows_, make(kCapacity)};
  for (std::uint64_t step = 0; life.opened < 20 * kCapacity && step < 200'000; ++step) {
    const std::uint64_t n = random() % 500;
    // Some reply keys are the originator's key of another connection, or of the same one.
    const std::uint64_t reply = random() % 20 == 0 ? random() % 500 : 1'000'000 + random() % 2000;
    if (random() % 3 == 0) {
      life.open_key(n, random() % 4 == 0 ? std::nullopt : std::optional(reply));
    } else {
      life.find_key(random() % 2 == 0 ? n : reply, random() % 2 == 0);
    }
    if (testing::Test::HasFatalFailure()) return;
    if (random() % 8 != 0) continue;
    life.tracker.reclaim();
    life.now = life.now +
               static_cast<std::uint32_t>(random() % 100 == 0 ? random() % 5000 : random() % 40);
    if (!ageing_.ages) {
      EXPECT_TRUE(life.sweep(64));
      while (life.live.size() > 200) {  // without ageing, `close` makes room
        const auto victim = life.live.begin()->first;
        life.tracker.close(life.live.at(victim).id);
        life.forget(victim);
      }
      continue;
    }
    while (!life.sweep(7)) {
    }
    life.check_ages();
    if (testing::Test::HasFatalFailure()) return;
    if (step % 64 == 0) check(life.tracker);
  }
  EXPECT_EQ(life.tracker.live(), life.live.size());
  EXPECT_EQ(life.opened - life.closed, life.live.size());
  EXPECT_GE(life.opened, 20 * kCapacity);
  EXPECT_GT(life.collided, 100U);
  if (ageing_.is_punctual) {
    EXPECT_EQ(life.refused, 0U);
  }
  life.tracker.reclaim();
  check(life.tracker);
}

TEST_P(TrackerTest, AFullTrackerRefusesAndKeepsWhatItHas) {
  for (const std::size_t capacity : {1U, 64U}) {
    auto tracker = make(capacity, false);
    EXPECT_FALSE(tracker.has_replies());
    std::map<std::uint64_t, ConnId> live;
    std::uint64_t refused = 0;
    for (std::uint64_t n = 0; n < 2000; ++n) {
      const Insertion in = open(tracker, nth_key<K>(n), Tick{0});
      refused += in.outcome == full;
      if (in.outcome != inserted) continue;
      tracker.confirm(in.id);
      live[n] = in.id;
    }
    EXPECT_GE(live.size(), capacity);
    EXPECT_EQ(live.size() + refused, 2000U);
    for (const auto& [n, id] : live) EXPECT_EQ(find(tracker, nth_key<K>(n), Tick{500}), id);
    check(tracker);
    if (!ageing_.ages) continue;
    const Tick late{500 + kTimeoutMs + ageing_.slack_ms};
    EXPECT_EQ(sweep(tracker, late), live.size());
    EXPECT_EQ(tracker.live(), 0U);
    tracker.reclaim();
    check(tracker);
    EXPECT_EQ(open(tracker, nth_key<K>(1), late).outcome, inserted);
  }
}

TEST_P(TrackerTest, WhatHasExpiredGivesWay) {
  if (!ageing_.leaves_expired) return;
  constexpr std::size_t kCapacity = 1000;
  std::mt19937_64 random(test::seed());
  Simulation life{ageing_, follows_, make(kCapacity)};
  for (std::uint64_t n = 0; n < kCapacity; ++n) life.open_key(n, 1'000'000 + n);
  ASSERT_EQ(life.live.size(), kCapacity);
  // Without a sweep: expired connections are replaced in place, and evicted for other keys.
  for (int round = 0; round < 20; ++round) {
    life.now = life.now + kTimeoutMs;
    for (std::size_t i = 0; i < kCapacity / 2; ++i) {
      const std::uint64_t n = random() % (3 * kCapacity);
      life.open_key(n, 1'000'000 + random() % (3 * kCapacity));
      if (testing::Test::HasFatalFailure()) return;
      if (i % 32 == 0) life.tracker.reclaim();
    }
    check(life.tracker);
    EXPECT_EQ(life.tracker.live(), life.live.size());
  }
  EXPECT_GT(life.closed, 5 * kCapacity);
}

// Restored connections evict nothing, not even an expired connection.
TEST_P(TrackerTest, NobodyGivesWayToWhatIsRestored) {
  auto tracker = make(100, false);
  std::size_t held = 0;
  for (std::uint64_t n = 0; n < 5000; ++n) {
    const Insertion in = open(tracker, nth_key<K>(n), Tick{0});
    if (in.outcome != inserted) continue;
    tracker.confirm(in.id);
    ++held;
  }
  const Tick late{2 * kTimeoutMs};
  const std::array<std::byte, 8> state{};
  std::size_t restored = 0;
  for (std::uint64_t n = 10'000; n < 12'000; ++n) {
    const ConnId id = tracker.restore(
        {.key = nth_key<K>(n), .state = state, .reply_key = {}, .reply_state = {}}, {}, late, 0,
        Tracked::Newcomer::adopted, [](ConnId) { ADD_FAILURE() << "a connection was evicted"; });
    restored += id != ConnId::none;
  }
  EXPECT_LT(restored, 2000U);
  EXPECT_EQ(tracker.table().size(), held + restored);
  check(tracker);
}

TEST_P(TrackerTest, AReplyKeepsItsConnectionAlive) {
  auto tracker = make(10);
  const ConnId id = open(tracker, nth_key<K>(1), Tick{0}).id;
  tracker.confirm(id, link(tracker, nth_key<K>(2), Tick{0}));
  for (std::uint32_t t = 0; t < 10 * kTimeoutMs; t += kTimeoutMs / 2) {
    EXPECT_NE(find(tracker, nth_key<K>(2), Tick{t}, true), ConnId::none);
    ASSERT_EQ(sweep(tracker, Tick{t}), 0U) << "removed while in use";
  }
  EXPECT_EQ(find(tracker, nth_key<K>(1), Tick{10 * kTimeoutMs}), id);
}

TEST_P(TrackerTest, WhatGoesOnStaysTheSameToTell) {
  for (const bool by_replies : {false, true}) {
    auto tracker = make(10, true, 1'000'000);
    const ConnId id = open(tracker, nth_key<K>(1), Tick{0}).id;
    tracker.confirm(id, link(tracker, nth_key<K>(2), Tick{0}));
    const auto told = tracker.fingerprint(id, Tick{0});
    for (std::uint32_t t = 0; t < 60'000; t += 700) {
      ASSERT_NE(find(tracker, nth_key<K>(by_replies ? 2 : 1), Tick{t}, by_replies), ConnId::none);
      ASSERT_EQ(tracker.fingerprint(id, Tick{t + 650}), told) << t;
    }
    const auto silent = tracker.fingerprint(id, Tick{75'000});
    EXPECT_NE(silent, told);
    EXPECT_EQ(tracker.fingerprint(id, Tick{80'000}), silent)
        << "a silent connection's fingerprint has changed again";
  }
}

// Packets of one direction keep a connection for longer than half the range of ticks: the tick of
// the opposite direction must not seem to lie in the future.
TEST_P(TrackerTest, OneDirectionAloneKeepsAConnectionForMonths) {
  constexpr std::uint32_t kStep = kSanitized ? 10'000'000 : 100'000;
  auto tracker = make(10, true, 10 * kStep);
  const ConnId id = open(tracker, nth_key<K>(1), Tick{0}).id;
  tracker.confirm(id, link(tracker, nth_key<K>(2), Tick{0}));
  Tick now{0};
  constexpr std::uint64_t kTwoMonths = 5'500'000'000;
  for (std::uint64_t past = 0; past < kTwoMonths; past += kStep) {
    now = now + kStep;
    ASSERT_EQ(find(tracker, nth_key<K>(1), now), id);
    ASSERT_EQ(sweep(tracker, now), 0U) << "after " << past << " ms";
  }
}

// `close` takes an id out of ageing: a later sweep must not end the next connection with that id.
TEST_P(TrackerTest, ASuccessorIsNotSweptInItsPredecessorsPlace) {
  auto tracker = make(1, false);
  const ConnId first = open(tracker, nth_key<K>(1), Tick{0}).id;
  tracker.confirm(first);
  tracker.close(first);
  tracker.reclaim();
  const Tick later{kTimeoutMs - 1};
  const ConnId second = open(tracker, nth_key<K>(2), later).id;
  tracker.confirm(second);
  EXPECT_EQ(sweep(tracker, Tick{kTimeoutMs + kIntervalMs}), 0U);
  EXPECT_EQ(find(tracker, nth_key<K>(2), Tick{kTimeoutMs + kIntervalMs}), second);
}

TEST_P(TrackerTest, WhatIsAbandonedLeavesNothing) {
  auto tracker = make(10);
  const ConnId id = open(tracker, nth_key<K>(1), Tick{0}).id;
  EXPECT_EQ(open(tracker, nth_key<K>(1), Tick{0}).outcome, present);
  tracker.abandon(id, link(tracker, nth_key<K>(2), Tick{0}));
  EXPECT_EQ(find(tracker, nth_key<K>(1), Tick{0}), ConnId::none);
  EXPECT_EQ(find(tracker, nth_key<K>(2), Tick{0}, true), ConnId::none);
  tracker.reclaim();
  EXPECT_EQ(tracker.table().size(), 0U);
  check(tracker);
}

}  // namespace
}  // namespace millrace
