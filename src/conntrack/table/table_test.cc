// One suite for every table of the lists, compiled once for each table.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"

namespace millrace {
namespace {

using test::nth_key;
using test::random_key;
using enum Insertion::Outcome;

#ifdef MILLRACE_COUNTED
static_assert(AllTables::kSize == MILLRACE_COUNTED,
              "schemes.h must list one table a line: the build counts these lines");
#endif

using Scheme = AllTables::At<MILLRACE_TABLE>;
template <class... K>
using With = testing::Types<test::Reclaiming<Scheme::Of<K>>...>;
using Tables =
    std::conditional_t<test::kCovering, With<test::KeyOf<MILLRACE_TABLE>>, With<KeyV4, KeyV6>>;

struct TableNames {
  template <class T>
  static std::string GetName(int) {
    using K = std::remove_cvref_t<decltype(std::declval<T>().records().header(ConnId{}).key)>;
    return std::string(T::kName) + (sizeof(K) == 16 ? "_v4" : "_v6");
  }
};

template <class T>
class TableTest : public testing::Test {
 protected:
  using KeyType = std::remove_cvref_t<decltype(std::declval<T>().records().header(ConnId{}).key)>;

  static T make(std::size_t capacity, std::uint64_t secret = test::seed()) {
    auto table = T::create({capacity, 8, Pages::small, Secret::from_seed(secret)});
    EXPECT_TRUE(table.has_value());
    return std::move(*table);
  }
  static Insertion insert(T& table, const KeyType& key) {
    return table.insert(key, table.hasher()(key), KeepAll{});
  }
  static ConnId find(const T& table, const KeyType& key) {
    const Hash hash = table.hasher()(key);
    ConnId id{};
    table.prefetch({&hash, 1});
    const Stragglers stragglers = table.prefetch_records({&key, 1}, {&hash, 1});
    table.prefetch_stragglers({&key, 1}, {&hash, 1}, stragglers);
    table.find({&key, 1}, {&hash, 1}, {&id, 1}, stragglers);
    return id;
  }
  static ConnId erase(T& table, const KeyType& key) {
    return table.erase(key, table.hasher()(key));
  }
  static void check(const T& table) {
    const auto ok = table.check_invariants();
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }

 private:
  testing::ScopedTrace repeat_{__FILE__, __LINE__, test::repeat()};
};
TYPED_TEST_SUITE(TableTest, Tables, TableNames);

struct ByBytes {
  template <class K>
  bool operator()(const K& a, const K& b) const {
    return std::memcmp(&a, &b, sizeof(K)) < 0;
  }
};

TYPED_TEST(TableTest, AgreesWithAnOracleUnderChurn) {
  using K = typename TestFixture::KeyType;
  std::mt19937_64 random(test::seed());
  constexpr std::size_t kCapacity = 2000;
  auto table = this->make(kCapacity);
  std::map<K, ConnId, ByBytes> oracle;
  std::set<ConnId> in_use;  // live or draining
  std::vector<ConnId> draining;
  for (std::size_t step = 0; step < 25 * kCapacity; ++step) {
    const K key = nth_key<K>(random() % (2 * kCapacity));
    const auto known = oracle.find(key);
    if (random() % 2 == 0 && oracle.size() < kCapacity) {
      const Insertion in = this->insert(table, key);
      if (known != oracle.end()) {
        ASSERT_EQ(in.outcome, present);
        ASSERT_EQ(in.id, known->second);
      } else {
        ASSERT_EQ(in.outcome, inserted)
            << "at " << oracle.size() << " live, " << draining.size() << " draining ids";
        ASSERT_TRUE(in_use.insert(in.id).second) << "an id was given out twice";
        ASSERT_EQ(in.displaced, ConnId::none);
        oracle.emplace(key, in.id);
      }
    } else {
      const ConnId gone = this->erase(table, key);
      ASSERT_EQ(gone, known == oracle.end() ? ConnId::none : known->second);
      if (known != oracle.end()) {
        draining.push_back(gone);
        oracle.erase(known);
      }
    }
    ASSERT_EQ(table.size(), oracle.size());
    if (step % 32 == 31) {
      // Releases the oldest half, so that at most as many ids drain as a burst may erase.
      const std::size_t oldest = (draining.size() + 1) / 2;
      table.reclaim(oldest);
      for (std::size_t i = 0; i < oldest; ++i) in_use.erase(draining[i]);
      draining.erase(draining.begin(), draining.begin() + static_cast<std::ptrdiff_t>(oldest));
      ASSERT_EQ(table.draining(), draining.size());
    }
    if (step % 4096 == 0) this->check(table);
  }
  for (std::size_t n = 0; n < 2 * kCapacity; ++n) {
    const auto known = oracle.find(nth_key<K>(n));
    ASSERT_EQ(this->find(table, nth_key<K>(n)),
              known == oracle.end() ? ConnId::none : known->second);
  }
  this->check(table);
}

TYPED_TEST(TableTest, FindsABurstOfHitsAndMisses) {
  using K = typename TestFixture::KeyType;
  auto table = this->make(1000);
  std::map<std::uint64_t, ConnId> ids;
  for (std::uint64_t n = 0; n < 1000; n += 2) ids[n] = this->insert(table, nth_key<K>(n)).id;
  std::array<K, 64> keys;
  std::array<Hash, 64> hashes;
  std::array<ConnId, 64> found;
  for (std::uint64_t n = 0; n < 64; ++n) keys[n] = nth_key<K>(n);
  table.hasher()(std::span<const K>(keys), std::span<Hash>(hashes));
  table.prefetch(hashes);
  Stragglers wrong;
  for (std::size_t n = 0; n < 64; n += 3) wrong.add(n);
  for (const Stragglers stragglers : {table.prefetch_records(keys, hashes), Stragglers{}, wrong}) {
    table.prefetch_stragglers(keys, hashes, stragglers);
    found.fill(ConnId{0xdead});
    table.find(keys, hashes, found, stragglers);
    for (std::uint64_t n = 0; n < 64; ++n) {
      EXPECT_EQ(found[n], n % 2 == 0 ? ids[n] : ConnId::none);
      if (found[n] != ConnId::none) {
        EXPECT_EQ(table.records().header(found[n]).key, keys[n]);
      }
    }
  }
}

// Lookups are right although entries are inserted and erased between the stages of the pipeline.
TYPED_TEST(TableTest, StaleHintsHarmNothing) {
  using K = typename TestFixture::KeyType;
  constexpr std::size_t kCapacity = 1024;
  constexpr std::size_t kKeys = 2 * kCapacity;
  std::mt19937_64 random(test::seed());
  auto table = this->make(kCapacity);
  std::vector<K> keys;
  for (std::size_t n = 0; n < kKeys; ++n) keys.push_back(nth_key<K>(n));
  std::vector<Hash> hashes(kKeys);
  table.hasher()(std::span<const K>(keys), std::span<Hash>(hashes));
  std::vector<ConnId> live(kKeys, ConnId::none);
  const auto change = [&](std::size_t percent) {
    for (std::size_t n = 0; n < kKeys; ++n) {
      if (n % 64 == 0) table.reclaim();
      const std::size_t key = random() % kKeys;
      if (random() % 100 >= percent) {
        ASSERT_EQ(table.erase(keys[key], hashes[key]), live[key]);
        live[key] = ConnId::none;
      } else if (table.size() < kCapacity) {
        live[key] = table.insert(keys[key], hashes[key], KeepAll{}).id;
        ASSERT_NE(live[key], ConnId::none);
      }
    }
    table.reclaim();
  };
  struct Burst {
    std::span<const K> keys;
    std::span<const Hash> hashes;
    Stragglers stragglers;
  };
  for (unsigned round = 0; round < 24; ++round) {
    ASSERT_NO_FATAL_FAILURE(change(90));
    std::vector<Burst> bursts;
    for (std::size_t n = 0; n < kKeys; n += 64) {
      Burst& burst =
          bursts.emplace_back(std::span<const K>(keys).subspan(n, 64),
                              std::span<const Hash>(hashes).subspan(n, 64), Stragglers{});
      table.prefetch(burst.hashes);
      burst.stragglers = table.prefetch_records(burst.keys, burst.hashes);
      std::set<std::size_t> to_open;
      const Stragglers opening = prefetch_to_open(table, burst.keys, burst.hashes);
      opening.for_each(64, [&](std::size_t i) { to_open.insert(i); });
      burst.stragglers.for_each(64, [&](std::size_t i) { EXPECT_TRUE(to_open.contains(i)); });
      if (round % 2 == 0) burst.stragglers = opening;
    }
    ASSERT_NO_FATAL_FAILURE(change(round % 3 * 30));
    for (const Burst& burst : bursts)
      table.prefetch_stragglers(burst.keys, burst.hashes, burst.stragglers);
    ASSERT_NO_FATAL_FAILURE(change(40));
    std::vector<ConnId> found(kKeys, ConnId{0xdead});
    for (std::size_t b = 0; b < bursts.size(); ++b)
      table.find(bursts[b].keys, bursts[b].hashes, std::span(found).subspan(64 * b, 64),
                 bursts[b].stragglers);
    ASSERT_EQ(found, live);
  }
  this->check(table);
}

// Draining ids do not count against the capacity.
TYPED_TEST(TableTest, ABurstThatReplacesEntriesIsNotRefused) {
  using K = typename TestFixture::KeyType;
  for (const std::size_t capacity : {64U, 1000U, 5000U}) {
    auto table = this->make(capacity);
    std::uint64_t next = 0;
    while (next < capacity) ASSERT_EQ(this->insert(table, nth_key<K>(next++)).outcome, inserted);
    for (int burst = 0; burst < 8; ++burst) {
      for (std::uint64_t n = 0; n < 64; ++n)
        ASSERT_NE(this->erase(table, nth_key<K>(next - capacity + n)), ConnId::none);
      for (std::uint64_t n = 0; n < 64; ++n)
        ASSERT_EQ(this->insert(table, nth_key<K>(next++)).outcome, inserted) << capacity;
      table.reclaim();
    }
    this->check(table);
  }
}

TYPED_TEST(TableTest, KeepsItsPromiseAndThenSaysFull) {
  using K = typename TestFixture::KeyType;
  for (const std::size_t capacity : {1U, 2U, 31U, 100U, 5000U}) {
    auto table = this->make(capacity);
    EXPECT_EQ(table.capacity(), capacity);
    EXPECT_GE(table.slots(), capacity);
    std::vector<ConnId> ids;
    while (ids.size() < 2 * table.slots() + 64) {
      const Insertion in = this->insert(table, nth_key<K>(ids.size()));
      ids.push_back(in.id);
      ASSERT_EQ(in.outcome, in.id == ConnId::none ? full : inserted);
      if (ids.size() <= capacity) {
        ASSERT_NE(in.id, ConnId::none) << "capacity " << capacity;
      }
    }
    for (std::size_t n = 0; n < ids.size(); ++n)
      ASSERT_EQ(this->find(table, nth_key<K>(n)), ids[n]);
    EXPECT_LE(table.size(), table.records().count());
    this->check(table);
    for (std::size_t n = 0; n < ids.size(); ++n)
      ASSERT_EQ(this->erase(table, nth_key<K>(n)), ids[n]);
    EXPECT_EQ(table.size(), 0U);
    table.reclaim();
    this->check(table);
    EXPECT_EQ(this->insert(table, nth_key<K>(7)).outcome, inserted);
  }
}

/// A table that holds all of its headroom (`TableConfig::headroom`).
template <class T>
concept HoldsHeadroom = T::kHoldsHeadroom;

// Inserts a fifth more keys than promised: tables that hold their headroom accept all of them,
// other tables may say *full*, and all inserted keys are found.
TYPED_TEST(TableTest, OverloadIsAnAnswer) {
  using K = typename TestFixture::KeyType;
  constexpr std::size_t kCapacity = 5000;
  auto made = TypeParam::create(
      {kCapacity, 8, Pages::small, Secret::from_seed(test::seed()), /*headroom=*/0.25});
  ASSERT_TRUE(made.has_value());
  TypeParam& table = *made;
  std::map<std::uint64_t, ConnId> ids;
  for (std::uint64_t n = 0; n < kCapacity * 6 / 5; ++n) {
    const Insertion in = this->insert(table, nth_key<K>(n));
    if (in.outcome == inserted) ids[n] = in.id;
    if (n < kCapacity || HoldsHeadroom<TypeParam>) {
      ASSERT_EQ(in.outcome, inserted) << n;
    }
  }
  EXPECT_EQ(table.size(), ids.size());
  for (const auto& [n, id] : ids) ASSERT_EQ(this->find(table, nth_key<K>(n)), id);
  this->check(table);
}

TYPED_TEST(TableTest, RefusesToBeMadeForNothing) {
  EXPECT_FALSE(TypeParam::create({.capacity = 0}).has_value());
  EXPECT_FALSE(TypeParam::create({.capacity = SIZE_MAX}).has_value());
}

// Until the burst ends, an erased id is neither found nor given out, and its record does not
// change.
TYPED_TEST(TableTest, ErasedIdsDrainUntilReclaimed) {
  using K = typename TestFixture::KeyType;
  auto table = this->make(1);
  std::vector<K> keys;
  for (Insertion in; in.outcome != full || keys.empty();) {
    in = this->insert(table, nth_key<K>(keys.size()));
    if (in.outcome != full) keys.push_back(nth_key<K>(keys.size()));
    if (keys.size() > 1000) FAIL() << "a table for one entry has accepted 1000";
  }
  const ConnId gone = this->erase(table, keys.front());
  ASSERT_NE(gone, ConnId::none);
  EXPECT_EQ(this->find(table, keys.front()), ConnId::none);
  for (unsigned i = 0; i < 100; ++i) {
    keys.push_back(nth_key<K>(2'000'000 + i));
    EXPECT_NE(this->insert(table, keys.back()).id, gone);
  }
  EXPECT_EQ(table.records().header(gone).key, keys.front());
  this->check(table);
  table.reclaim();
  this->check(table);
  // There may be more ids than slots, so that several rounds pass before the id is given out again.
  bool reused = false;
  for (int round = 0; round < 200 && !reused; ++round) {
    for (const K& key : keys) this->erase(table, key);
    table.reclaim();
    for (const K& key : keys) reused |= this->insert(table, key).id == gone;
  }
  EXPECT_TRUE(reused);
}

/// Rates ids by a list. Ids that are not on the list, and the newcomer, are worth 100.
struct Listed {
  std::map<ConnId, std::uint8_t> list;
  std::uint8_t operator()(ConnId id) const {
    const auto at = list.find(id);
    return at == list.end() ? 100 : at->second;
  }
};

TYPED_TEST(TableTest, ADeadEntryOfTheSameKeyIsReplaced) {
  using K = typename TestFixture::KeyType;
  auto table = this->make(100);
  const K key = nth_key<K>(1);
  const ConnId first = this->insert(table, key).id;
  const Insertion again = table.insert(key, table.hasher()(key), Listed{{{first, 0}}});
  EXPECT_EQ(again.outcome, inserted);
  EXPECT_EQ(again.displaced, first);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(this->find(table, key), again.id);
  this->check(table);
}

TYPED_TEST(TableTest, AFullTableGivesUpWhatIsWorthLess) {
  using K = typename TestFixture::KeyType;
  auto table = this->make(50);
  std::map<ConnId, K> live;
  for (std::uint64_t n = 0; n < 20 * table.slots(); ++n) {
    const Insertion in = this->insert(table, nth_key<K>(n));
    if (in.outcome == inserted) live[in.id] = nth_key<K>(n);
  }
  const std::size_t size = table.size();
  Listed worth;
  for (const auto& [id, key] : live)
    worth.list[id] = static_cast<std::uint8_t>(index(id) % 2 == 0 ? 3 : 200);
  std::size_t displaced = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const K key = nth_key<K>(1'000'000 + n);
    const Insertion in = table.insert(key, table.hasher()(key), worth);
    if (in.outcome == full) continue;
    ASSERT_EQ(in.outcome, inserted);
    ASSERT_NE(in.displaced, ConnId::none);
    ASSERT_EQ(worth(in.displaced), 3);
    ASSERT_EQ(this->find(table, live[in.displaced]), ConnId::none);
    ASSERT_EQ(this->find(table, key), in.id);
    live.erase(in.displaced);
    live[in.id] = key;
    worth.list[in.id] = 200;
    ++displaced;
    this->check(table);
  }
  EXPECT_GT(displaced, 5U);
  EXPECT_EQ(table.size(), size);
  for (const auto& [id, key] : live) EXPECT_EQ(this->find(table, key), id);
}

TYPED_TEST(TableTest, AWalkSeesWhatLivesThroughIt) {
  using K = typename TestFixture::KeyType;
  std::mt19937_64 random(test::seed());
  auto table = this->make(3000);
  std::set<ConnId> stays;
  for (std::uint64_t n = 0; n < 1000; ++n) stays.insert(this->insert(table, nth_key<K>(n)).id);
  std::set<ConnId> seen;
  std::uint64_t next = 1000;
  std::uint64_t oldest = 1000;
  std::size_t steps = 0;
  for (auto at = Cursor::begin; at != Cursor::end; ++steps) {
    std::size_t visited = 0;
    at = table.walk(at, 64, [&](ConnId id) {
      seen.insert(id);
      ++visited;
    });
    ASSERT_LE(visited, 128U) << "a step of 64 must visit at most 128 entries";
    for (int i = 0; i < 40; ++i) this->insert(table, nth_key<K>(next++));
    while (next - oldest > 1000) this->erase(table, nth_key<K>(oldest++));
    table.reclaim();
  }
  EXPECT_GT(steps, 10U);
  for (const ConnId id : stays) EXPECT_TRUE(seen.contains(id));
}

// Keys that share a bucket under one secret are spread under another secret.
TYPED_TEST(TableTest, CollisionsUnderAnotherSecretDoNotHurt) {
  using K = typename TestFixture::KeyType;
  const Hasher other(Secret::from_seed(test::seed() + 1));
  auto table = this->make(2000);
  std::vector<K> keys;
  for (std::uint64_t n = 0; keys.size() < 2000; ++n) {
    if (other(nth_key<K>(n)) >> 57 == 0) keys.push_back(nth_key<K>(n));
  }
  for (const K& key : keys) ASSERT_EQ(this->insert(table, key).outcome, inserted);
  for (const K& key : keys) ASSERT_NE(this->find(table, key), ConnId::none);
  this->check(table);
}

// The worst case of a broken hash: all hashes are equal. The table may refuse keys, but does not
// loop forever, and finds all inserted keys.
TYPED_TEST(TableTest, EqualHashesAreSurvived) {
  using K = typename TestFixture::KeyType;
  auto table = this->make(1000);
  std::map<std::uint64_t, ConnId> ids;
  for (std::uint64_t n = 0; n < 2000; ++n) {
    const K key = nth_key<K>(n);
    const Insertion in = table.insert(key, 42, KeepAll{});
    if (in.outcome == inserted) ids[n] = in.id;
  }
  EXPECT_GE(ids.size(), 8U);
  for (const auto& [n, id] : ids) {
    const K key = nth_key<K>(n);
    const Hash hash = 42;
    ConnId found{};
    table.find({&key, 1}, {&hash, 1}, {&found, 1});
    EXPECT_EQ(found, id);
    EXPECT_EQ(table.erase(key, hash), id);
  }
  EXPECT_EQ(table.size(), 0U);
}

}  // namespace
}  // namespace millrace
