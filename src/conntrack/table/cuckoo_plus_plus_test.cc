// Tests of `cuckoo++` beyond the common suite: its filters, its walk among moving entries, its
// timers.
#include "conntrack/table/cuckoo_plus_plus.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/table/cuckoo_test_support.h"
#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"

namespace millrace {
namespace {

using enum Insertion::Outcome;

template <class T>
class CuckooPlusPlusTest : public testing::Test {
 protected:
  using Key = std::remove_cvref_t<decltype(std::declval<T>().records().header(ConnId{}).key)>;
  using Driver = test::Driven<T, Key>;
};
using Tables = testing::Types<CuckooPlusPlus<KeyV4>, CuckooPlusPlus<KeyV6>,
                              CuckooPlusPlusTimers<KeyV4>, CuckooPlusPlusTimers<KeyV6>>;
TYPED_TEST_SUITE(CuckooPlusPlusTest, Tables);

TYPED_TEST(CuckooPlusPlusTest, StaysWithinItsPromiseUnderChurnAtItsMaximumLoad) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  SCOPED_TRACE(test::repeat());
  test::expect_promise_kept_under_churn<TypeParam, typename TestFixture::Key>(
      31'129);  // 2^15 slots
}

TYPED_TEST(CuckooPlusPlusTest, OverloadIsRefusedAndLosesNothing) {
  SCOPED_TRACE(test::repeat());
  test::expect_overload_survived<TypeParam, typename TestFixture::Key>(std::size_t{1}
                                                                       << (kSanitized ? 12 : 15));
}

// Attacks invariants 2 and 3. In the published code, a deletion from a second bucket cleared the
// filter of that bucket instead of the home's, and live keys were lost.
TYPED_TEST(CuckooPlusPlusTest, FiltersKnowWhatIsAway) {
  SCOPED_TRACE(test::repeat());
  test::expect_crowding_survived<TypeParam, typename TestFixture::Key>(6);
}

TYPED_TEST(CuckooPlusPlusTest, AMissReadsOneBucketAlmostAlways) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  SCOPED_TRACE(test::repeat());
  typename TestFixture::Driver driven(TestFixture::Driver::sized(62'259));  // of 2^16 slots
  driven.fill(49'152);
  EXPECT_GT(driven.table.statistics().home_share, 0.93);
  EXPECT_LT(driven.table.statistics().buckets_per_miss, 1.01);
  driven.churn(10 * driven.live.size());
  EXPECT_GT(driven.table.statistics().home_share, 0.87);
  EXPECT_LT(driven.table.statistics().buckets_per_miss, 1.05);
}

// Invariant 2: a bucket that has sent away as many entries as it can count sends no more. The
// hashes have one home and, in their upper bits, different tags.
TEST(CuckooPlusPlus, ABucketSendsAwayOnlyWhatItCanCount) {
  auto table = CuckooPlusPlus<KeyV4>::create({60'000, 0, Pages::small, Secret::from_seed(1)});
  ASSERT_TRUE(table.has_value());
  std::map<std::uint64_t, ConnId> ids;
  const auto hash_of = [](std::uint64_t n) { return (n + 1) << 48 | 77; };
  for (std::uint64_t n = 0; n < 2000; ++n) {
    const auto in = table->insert(test::nth_key<KeyV4>(n), hash_of(n), KeepAll{});
    if (in.outcome == inserted) ids[n] = in.id;
  }
  EXPECT_GE(ids.size(), 8U + 254);
  EXPECT_LE(ids.size(), 8U + 255);
  for (const auto& [n, id] : ids) {
    const auto key = test::nth_key<KeyV4>(n);
    const Hash hash = hash_of(n);
    ConnId found{};
    table->find({&key, 1}, {&hash, 1}, {&found, 1});
    ASSERT_EQ(found, id);
    ASSERT_EQ(table->erase(key, hash), id);
  }
  EXPECT_EQ(table->statistics().buckets_per_miss, 1.0);
}

/// A walk, and the entries that have lived since its start and that the walk has not visited yet.
template <class Driven>
struct Walker {
  explicit Walker(const Driven& driven) {
    for (const auto& entry : driven.live) missing.insert(entry.id);
  }
  void step(const Driven& driven, std::size_t about) {
    std::size_t visited = 0;
    at = driven.table.walk(at, about, [&](ConnId id) {
      missing.erase(id);
      ++visited;
    });
    EXPECT_LE(visited, about + 64) << "a step must visit at most 64 entries more than asked";
    ++steps;
  }
  bool ended() const { return at == Cursor::end; }

  std::set<ConnId> missing;
  Cursor at = Cursor::begin;
  std::size_t steps = 0;
};

template <class Driven>
void erase_one(Driven& driven, std::vector<Walker<Driven>>& walkers) {
  const std::size_t which = driven.random() % driven.live.size();
  for (auto& walker : walkers) walker.missing.erase(driven.live[which].id);
  driven.erase_at(which);
}

// The contract of `walk`: every entry that lives through the whole walk is visited. The table is
// nearly full, so that most insertions move other entries.
TYPED_TEST(CuckooPlusPlusTest, AWalkMeetsWhatMoves) {
  SCOPED_TRACE(test::repeat());
  using Driven = typename TestFixture::Driver;
  for (std::uint64_t salt = 0; salt < (kSanitized ? 10 : 40); ++salt) {
    Driven driven(Driven::sized(972, 0.05, salt), salt);  // of 1024 slots
    driven.fill(990);
    std::vector<Walker<Driven>> walkers(1, Walker(driven));
    while (!walkers[0].ended() && !testing::Test::HasFatalFailure()) {
      walkers[0].step(driven, 1 + driven.random() % 32);
      for (std::uint64_t updates = driven.random() % 40; updates > 0; --updates) {
        erase_one(driven, walkers);
        driven.insert_surely();
      }
      if (walkers[0].steps % 16 == 0) driven.check();
    }
    ASSERT_TRUE(walkers[0].missing.empty()) << walkers[0].missing.size() << " in round " << salt;
  }
}

// Each step of a walk brings it nearer to its end, however many entries are inserted in between.
TYPED_TEST(CuckooPlusPlusTest, AWalkEndsWhateverIsInserted) {
  SCOPED_TRACE(test::repeat());
  using Driven = typename TestFixture::Driver;
  Driven driven(Driven::sized(972, 0.05));
  driven.fill(990);
  std::vector<Walker<Driven>> walkers(1, Walker(driven));
  while (!walkers[0].ended() && !testing::Test::HasFatalFailure()) {
    walkers[0].step(driven, 8);
    for (int updates = 0; updates < 500; ++updates) {
      const auto& newest = driven.live.back();  // older entries live on, and move
      ASSERT_EQ(driven.table.erase(newest.key, driven.hash(newest.key)), newest.id);
      walkers[0].missing.erase(newest.id);
      driven.live.pop_back();
      driven.table.reclaim();
      driven.insert_surely();
    }
    ASSERT_LE(walkers[0].steps, 1024U / 8 + 990 / 8 + 2);
  }
  EXPECT_TRUE(walkers[0].missing.empty());
}

// Walks may begin, overlap and be abandoned at any time.
TYPED_TEST(CuckooPlusPlusTest, WalksMayOverlap) {
  SCOPED_TRACE(test::repeat());
  using Driven = typename TestFixture::Driver;
  constexpr std::uint64_t kRounds = kSanitized ? 3 : 10;
  std::size_t ended = 0;
  for (std::uint64_t salt = 0; salt < kRounds; ++salt) {
    Driven driven(Driven::sized(972, 0.05, salt), salt);
    driven.fill(990);
    std::vector<Walker<Driven>> walkers;
    for (int turn = 0; turn < 1500 && !testing::Test::HasFatalFailure(); ++turn) {
      if (driven.random() % 32 == 0 && walkers.size() < 4) walkers.emplace_back(driven);
      for (auto& walker : walkers) {
        if (driven.random() % 2 == 0) walker.step(driven, 16);
        if (!walker.ended()) continue;
        ++ended;
        ASSERT_TRUE(walker.missing.empty()) << "round " << salt;
      }
      std::erase_if(walkers, [](const auto& walker) { return walker.ended(); });
      if (driven.random() % 300 == 0) walkers.clear();
      for (int updates = 0; updates < 4; ++updates) {
        erase_one(driven, walkers);
        driven.insert_surely();
      }
      if (turn % 100 == 0) driven.check();
    }
  }
  EXPECT_GT(ended, 5 * kRounds);
}

TEST(ModificationBits, FindTheLowestThatIsSet) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (const std::uint32_t size : {1U, 64U, 65U, 5000U, 300'000U}) {
    auto bits = ModificationBits::create(size, Pages::small);
    ASSERT_TRUE(bits.has_value());
    std::set<std::uint32_t> oracle;
    for (int step = 0; step < 5000; ++step) {
      const auto at = static_cast<std::uint32_t>(random() % size);
      if (random() % 4 == 0) {
        bits->set(at);
        oracle.insert(at);
      } else {
        const std::uint32_t first = random() % 2 == 0 || oracle.empty() ? at : *oracle.begin();
        bits->clear(first);
        oracle.erase(first);
      }
      ASSERT_EQ(bits->first(), oracle.empty() ? ModificationBits::kNone : *oracle.begin());
      ASSERT_EQ(bits->test(at), oracle.contains(at));
    }
  }
}

/// A table with timers and an oracle: the time of each entry's last use, which does not wrap.
class Timed {
 public:
  static constexpr CuckooStamp kTimeout = 40;
  using Table = test::Reclaiming<CuckooPlusPlusTimers<KeyV4>>;

  Timed() : table(std::move(*Table::create(config()))), random(test::seed()) {}

  /// Erases the expired entries of all buckets, and compares them with the oracle.
  void expire() {
    std::set<ConnId> gone;
    for (std::uint32_t at = 0; at < table.buckets(); ++at)
      table.expire(at, stamp(), kTimeout, [&](ConnId id) { gone.insert(id); });
    std::set<ConnId> due;
    for (const auto& [id, entry] : live) {
      if (has_expired(entry)) due.insert(id);
    }
    ASSERT_EQ(gone, due);
    for (const ConnId id : gone) {
      forget(id);
      table.release(id);
    }
  }
  void touch_some() {
    std::array<KeyV4, 8> keys;
    std::array<Hash, 8> hashes;
    std::array<ConnId, 8> ids;
    for (KeyV4& key : keys) key = test::nth_key<KeyV4>(random() % 4000);
    table.hasher()(std::span<const KeyV4>(keys), std::span<Hash>(hashes));
    table.touch(keys, hashes, ids, stamp());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(ids[i] != ConnId::none, ids_of.contains(index_of(keys[i])));
      if (ids[i] != ConnId::none) live.at(ids[i]).last = now;
    }
  }
  void insert_one() {
    const KeyV4 key = test::nth_key<KeyV4>(random() % 4000);
    const auto in = table.insert(key, table.hasher()(key), KeepAll{}, stamp(), kTimeout);
    const auto known = ids_of.find(index_of(key));
    if (in.outcome == present) {
      ASSERT_EQ(in.id, known->second);
      ASSERT_FALSE(has_expired(live.at(in.id)));
    } else if (in.outcome == inserted) {
      ASSERT_EQ(in.displaced == ConnId::none, !live.contains(in.id));
      if (in.displaced != ConnId::none) {
        ASSERT_EQ(in.displaced, in.id);
        ASSERT_TRUE(has_expired(live.at(in.id))) << "displaced, but not expired";
        forget(in.id);
        ++displaced;
      }
      live[in.id] = {key, now};
      ids_of[index_of(key)] = in.id;
    }
    refused += in.outcome == full;
  }
  struct Entry {
    KeyV4 key;
    std::uint64_t last;
  };
  bool has_expired(const Entry& entry) const { return now - entry.last >= kTimeout; }
  CuckooStamp stamp() const { return static_cast<CuckooStamp>(now); }

  Table table;
  std::mt19937_64 random;
  std::map<ConnId, Entry> live;
  std::map<std::uint64_t, ConnId> ids_of;
  std::uint64_t now = 100;
  std::size_t displaced = 0;
  std::size_t refused = 0;

 private:
  void forget(ConnId id) {
    ids_of.erase(index_of(live.at(id).key));
    live.erase(id);
  }
  static TableConfig config() {
    return {972, 0, Pages::small, Secret::from_seed(test::seed()), 0.05};  // of 1024 slots
  }
  static std::uint64_t index_of(const KeyV4& key) {
    std::uint64_t n = 0;
    std::memcpy(&n, key.source.bytes.data(), 4);
    return n;
  }
};

TEST(CuckooPlusPlusTimers, AgreeWithAnOracle) {
  SCOPED_TRACE(test::repeat());
  Timed timed;
  constexpr int kSteps = kSanitized ? 10'000 : 40'000;
  for (int step = 0; step < kSteps; ++step) {
    if (timed.random() % 3 != 0) {
      timed.insert_one();
    } else {
      timed.touch_some();
    }
    if (timed.random() % 32 == 0) ++timed.now;
    // A stamp looks young again after 256 units, so every bucket needs `expire` within 256 units
    // less the timeout of 40.
    if (timed.now % 200 == 0) timed.expire();
    if (step % 500 == 0) {
      const auto ok = timed.table.check_invariants();
      ASSERT_TRUE(ok.has_value()) << ok.error().message;
    }
    ASSERT_EQ(timed.table.size(), timed.live.size());
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(timed.displaced, 1000U);
  EXPECT_GT(timed.refused, 100U) << "the table was never full of live entries";
}

}  // namespace
}  // namespace millrace
