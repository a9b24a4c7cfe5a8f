// Tests of walks over the library's live connections, while connections begin and end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "conntrack/test_support.h"
#include "millrace/millrace.h"
#include "millrace/tracker.h"

namespace millrace {
namespace {

using test::nth_key;

template <class K>
class WalkTest : public testing::Test {
 public:
  static ConnectionTracker<K> make() {
    return std::move(*ConnectionTracker<K>::create(
        {.capacity = 1000, .reply_state_bytes = 8, .timeout_ms = 1000, .seed = 1}));
  }
  static ConnId open(ConnectionTracker<K>& tracker, std::uint64_t n, Tick now = {}) {
    const K key = nth_key<K>(n);
    ConnId id{};
    tracker.track({&key, 1}, now, {&id, 1});
    return id;
  }
  /// Returns how often a whole walk visited each id. Calls `between` after each piece.
  template <class Between>
  static std::map<ConnId, int> walk(const ConnectionTracker<K>& tracker, std::size_t budget,
                                    Between&& between) {
    std::map<ConnId, int> visits;
    for (ConnId from{0}; from != ConnId::none;) {
      std::size_t visited = 0;
      const ConnId next = tracker.walk(from, budget, [&](ConnId id) {
        EXPECT_GE(index(id), index(from));
        EXPECT_LT(index(id) - index(from), budget);
        ++visits[id];
        ++visited;
      });
      EXPECT_LE(visited, budget);
      EXPECT_TRUE(next == ConnId::none || index(next) == index(from) + budget);
      from = next;
      between();
    }
    return visits;
  }
};
using Keys = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(WalkTest, Keys);

TYPED_TEST(WalkTest, VisitsEveryLiveConnectionOnce) {
  auto tracker = TestFixture::make();
  EXPECT_TRUE(TestFixture::walk(tracker, 100, [] {}).empty());
  std::vector<ConnId> ids;
  for (unsigned n = 0; n < 700; ++n) ids.push_back(TestFixture::open(tracker, n));
  for (unsigned n = 0; n < 700; n += 7) tracker.close(ids[n]);
  for (const std::size_t budget : {1UZ, 64UZ, SIZE_MAX}) {
    if (budget == SIZE_MAX) {
      std::size_t visited = 0;
      EXPECT_EQ(tracker.walk(ConnId{0}, budget, [&](ConnId) { ++visited; }), ConnId::none);
      EXPECT_EQ(visited, 600U);
      continue;
    }
    const auto visits = TestFixture::walk(tracker, budget, [] {});
    EXPECT_EQ(visits.size(), tracker.size());
    for (unsigned n = 0; n < 700; ++n)
      EXPECT_EQ(n % 7 != 0 && visits.contains(ids[n]) && visits.at(ids[n]) == 1, n % 7 != 0);
  }
  EXPECT_EQ(tracker.walk(ConnId::none, 64, [](ConnId) { FAIL(); }), ConnId::none);
  EXPECT_EQ(tracker.walk(ConnId{5}, 0, [](ConnId) { FAIL(); }), ConnId{5});
}

TYPED_TEST(WalkTest, MeetsWhatLivesThroughItWhateverBeginsAndEnds) {
  auto tracker = TestFixture::make();
  std::vector<ConnId> lasting;
  for (unsigned n = 0; n < 400; ++n) lasting.push_back(TestFixture::open(tracker, n));
  std::vector<ConnId> passing;
  for (unsigned n = 400; n < 800; ++n) passing.push_back(TestFixture::open(tracker, n));
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  std::uint64_t next = 800;
  const auto visits = TestFixture::walk(tracker, 16, [&] {
    for (unsigned i = 0; i < 20; ++i) {
      ConnId& id = passing[random() % passing.size()];
      tracker.close(id);
      id = TestFixture::open(tracker, next++);
    }
  });
  for (const ConnId id : lasting) EXPECT_EQ(visits.at(id), 1);
  EXPECT_TRUE(std::ranges::all_of(visits, [](const auto& visit) { return visit.second == 1; }));
}

TYPED_TEST(WalkTest, VisitorsMayCloseAndOpen) {
  auto tracker = TestFixture::make();
  for (unsigned n = 0; n < 500; ++n) TestFixture::open(tracker, n);
  std::uint64_t next = 500;
  std::size_t visited = 0;
  tracker.walk(ConnId{0}, SIZE_MAX, [&](ConnId id) {
    ++visited;
    tracker.close(id);
    if (next < 600) TestFixture::open(tracker, next++);
  });
  EXPECT_GE(visited, 500U);
  EXPECT_EQ(tracker.size(), 600 - visited);
}

TYPED_TEST(WalkTest, SaysWhatAListOfConnectionsNeeds) {
  auto tracker = TestFixture::make();
  const ConnId alone = TestFixture::open(tracker, 1, Tick{10});
  const ConnId answered = TestFixture::open(tracker, 2, Tick{20});
  const TypeParam answer = reversed(nth_key<TypeParam>(2));
  ASSERT_TRUE(tracker.link(answered, answer, Tick{20}));
  ConnId reply{};
  tracker.find(Side::reply, {&answer, 1}, Tick{500}, {&reply, 1});
  EXPECT_EQ(tracker.reply(alone), ConnId::none);
  EXPECT_EQ(tracker.reply(answered), reply);
  EXPECT_EQ(tracker.last_seen(alone), Tick{10});
  EXPECT_EQ(tracker.last_seen(answered), Tick{500});
}

TEST(CWalk, VisitsEveryLiveConnectionOnce) {
  millrace_options options = millrace_defaults();
  options.capacity = 100;
  options.replies = true;
  millrace_tracker* tracker = millrace_create(&options, nullptr, 0);
  ASSERT_NE(tracker, nullptr);
  std::array<millrace_key_v4, 50> keys{};
  for (std::uint8_t i = 0; i < 50; ++i) keys[i].source[3] = i;
  std::array<std::uint32_t, 50> ids{};
  millrace_track(tracker, keys.data(), 50, 7, ids.data());
  millrace_close(tracker, ids[9]);
  struct Seen {
    millrace_tracker* tracker;
    std::array<int, 50> visits;
  } seen{tracker, {}};
  const auto visit = [](std::uint32_t id, void* context) {
    auto& of = *static_cast<Seen*>(context);
    ++of.visits[static_cast<const millrace_key_v4*>(millrace_key(of.tracker, id))->source[3]];
    EXPECT_EQ(millrace_last_seen(of.tracker, id), 7U);
    EXPECT_EQ(millrace_reply(of.tracker, id), MILLRACE_NONE);
  };
  unsigned pieces = 0;
  for (std::uint32_t at = 0; at != MILLRACE_NONE; ++pieces)
    at = millrace_walk(tracker, at, 16, visit, &seen);
  EXPECT_GT(pieces, 100U / 16);
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(seen.visits[i], i == 9 ? 0 : 1);
  millrace_destroy(tracker);
}

}  // namespace
}  // namespace millrace
