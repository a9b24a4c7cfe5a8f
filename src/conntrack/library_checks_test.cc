// Breaks the rules that callers of the library must keep, one by one: a debug build names the
// broken rule.
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "conntrack/test_support.h"
#include "millrace/detail/check.h"
#include "millrace/millrace.h"
#include "millrace/race.h"
#include "millrace/tracker.h"

namespace millrace {
namespace {

using test::nth_key;

/// Fixture of the checks that debug builds make.
class ChecksTest : public testing::Test {
 public:
  void SetUp() override {
    // A release build checks nothing, so the death tests would fail.
    if (!MILLRACE_CHECKS) GTEST_SKIP() << "this build has no checks";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    for (std::uint64_t n = 0; n < keys.size(); ++n) keys[n] = nth_key<KeyV4>(n);
  }
  ConnId open(std::uint64_t n) {
    const KeyV4 key = nth_key<KeyV4>(n);
    ConnId id{};
    tracker.track({&key, 1}, Tick{0}, {&id, 1});
    return id;
  }
  ConnId linked(std::uint64_t n) {
    const ConnId id = open(n);
    tracker.link(id, reversed(nth_key<KeyV4>(n)), Tick{0});
    return tracker.reply(id);
  }

  std::array<KeyV4, 65> keys;
  std::array<ConnId, 65> ids;
  ConnectionTracker<KeyV4> tracker = std::move(*ConnectionTracker<KeyV4>::create(
      {.capacity = 100, .reply_state_bytes = 8, .timeout_ms = 1000, .seed = 1}));
};
using ChecksDeathTest = ChecksTest;

TEST_F(ChecksDeathTest, ABurstHas64KeysAtMostAndAsManyIds) {
  EXPECT_DEATH(tracker.track(keys, Tick{0}, ids), "^millrace: track: a burst must have 64 keys at");
  EXPECT_DEATH(tracker.find(Side::reply, keys, Tick{0}, ids), "^millrace: find: a burst must have");
  const auto few = std::span(ids).first(3);
  EXPECT_DEATH(tracker.track(std::span(keys).first(4), Tick{0}, few),
               "^millrace: track: ids must be as long as keys or longer");
  EXPECT_DEATH(tracker.find(Side::originator, std::span(keys).first(4), Tick{0}, few),
               "^millrace: find: ids must be as long as keys or longer");
  tracker.track(std::span(keys).first(64), Tick{0}, ids);
  EXPECT_EQ(tracker.size(), 64U);
}

TEST_F(ChecksDeathTest, AConnectionIsClosedOnce) {
  const ConnId id = open(1);
  tracker.close(id);
  EXPECT_DEATH(tracker.close(id), "^millrace: close: the id must be that of a live connection");
}

TEST_F(ChecksDeathTest, IdsAreThoseOfLiveConnections) {
  const ConnId ended = open(1);
  while (!tracker.sweep(Tick{5000})) {
  }
  const auto past = ConnId{1'000'000};
  for (const ConnId id : {ended, past, ConnId::none}) {
    EXPECT_DEATH(tracker.state(id), "^millrace: state: the id must be that of a live connection");
    EXPECT_DEATH((void)tracker.key(id), "^millrace: key: the id must be that of a live connection");
    EXPECT_DEATH(tracker.close(id), "^millrace: close: the id must be that of a live connection");
    EXPECT_DEATH(tracker.link(id, keys[0], Tick{0}), "^millrace: link: the id must be that of");
    EXPECT_DEATH((void)tracker.last_seen(id), "^millrace: last_seen: the id must be that of");
    EXPECT_DEATH((void)tracker.reply(id), "^millrace: reply: the id must be that of a");
  }
}

TEST_F(ChecksDeathTest, ReplyIdsAreThoseOfLiveReplyEntries) {
  const ConnId reply = linked(1);
  tracker.close(tracker.originator(reply));
  for (const ConnId id : {reply, ConnId{1'000'000}, ConnId::none}) {
    EXPECT_DEATH(tracker.reply_state(id), "^millrace: reply_state: the id must be that of a");
    EXPECT_DEATH((void)tracker.originator(id), "^millrace: originator: the id must be that of");
  }
  const auto without = ConnectionTracker<KeyV4>::create({.capacity = 10});
  EXPECT_DEATH(without->reply_state(ConnId{0}), "^millrace: reply_state: the id must be that of");
}

TEST_F(ChecksDeathTest, WhatASweepCallsChangesNothing) {
  const ConnId id = open(1);
  const auto break_rule = [&](auto change) {
    tracker.sweep(Tick{5000}, 64, [&](ConnId) { change(); });
  };
  constexpr auto kRule = "the callback of a sweep must not call this function";
  EXPECT_DEATH(break_rule([&] { tracker.close(id); }), kRule);
  EXPECT_DEATH(break_rule([&] { open(2); }), kRule);
  EXPECT_DEATH(break_rule([&] { tracker.sweep(Tick{5000}); }), kRule);
  EXPECT_DEATH(break_rule([&] { linked(1); }), kRule);
  bool told = false;
  break_rule([&] { told = tracker.state(id) != nullptr && tracker.key(id) == nth_key<KeyV4>(1); });
  EXPECT_TRUE(told) << "reading is allowed";
  open(2);
}

TEST_F(ChecksDeathTest, ATrackerThatWasMovedFromIsOnlyDestroyedOrAssignedTo) {
  auto other = std::move(tracker);
  // The test uses a tracker after a move on purpose.
  // NOLINTNEXTLINE(bugprone-use-after-move)
  EXPECT_DEATH((void)tracker.size(), "^millrace: size: the tracker must not be one");
  EXPECT_DEATH(open(1), "^millrace: track: the tracker must not be one");
  tracker = std::move(other);
  EXPECT_NE(open(1), ConnId::none);
}

TEST_F(ChecksDeathTest, InCToo) {
  millrace_options options = millrace_defaults();
  options.capacity = 100;
  millrace_tracker* c = millrace_create(&options, nullptr, 0);
  std::array<std::uint32_t, 65> c_ids{};
  ASSERT_EQ(millrace_track(c, keys.data(), 2, 0, c_ids.data()), 3U);
  EXPECT_DEATH(millrace_track(c, keys.data(), 65, 0, c_ids.data()),
               "^millrace: track: a burst must have 64 keys at most");
  EXPECT_DEATH(millrace_track(c, nullptr, 1, 0, c_ids.data()),
               "^millrace: millrace_track: keys and ids must not be NULL");
  EXPECT_DEATH(millrace_find(nullptr, keys.data(), 1, 0, c_ids.data()),
               "^millrace: millrace_find: tracker must not be NULL");
  EXPECT_DEATH(millrace_create(nullptr, nullptr, 0), "^millrace: millrace_create: options must");
  EXPECT_DEATH(millrace_state(c, MILLRACE_NONE), "^millrace: state: the id must be that of a live");
  millrace_close(c, c_ids[0]);
  EXPECT_DEATH(millrace_close(c, c_ids[0]), "^millrace: close: the id must be that of a live");
  millrace_destroy(c);
}

TEST_F(ChecksDeathTest, OfTheTableAndItsRecords) {
  auto table = std::move(*Race<KeyV4>::create({.capacity = 100}));
  std::array<Hash, 65> hashes;
  table.hasher()(std::span<const KeyV4>(keys), std::span(hashes));
  EXPECT_DEATH(table.hasher()(std::span<const KeyV4>(keys), std::span(hashes).first(3)),
               "^millrace: Hasher: hashes must be as long as keys or longer");
  const auto of = [](auto& all, std::size_t count) { return std::span(all).first(count); };
  EXPECT_DEATH(table.find(of(keys, 3), of(hashes, 2), ids), "^millrace: Race::find: there must be");
  EXPECT_DEATH(table.find(of(keys, 3), of(hashes, 3), of(ids, 2)), "^millrace: Race::find: there");
  const ConnId id = table.insert(keys[0], hashes[0], KeepAll{}).id;
  EXPECT_DEATH(table.release(id), "^millrace: Race::release: the id must be draining");
  table.erase(keys[0], hashes[0]);
  table.release(id);
  EXPECT_DEATH(table.release(id), "^millrace: Race::release: the id must be draining");
  EXPECT_DEATH((void)table.records().header(ConnId::none), "^millrace: Records: an id must be");
  EXPECT_DEATH((void)table.records().state(ConnId::none), "^millrace: Records: an id must be");
}

}  // namespace
}  // namespace millrace
