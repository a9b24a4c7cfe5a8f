// Tests of `race` beyond the contract of every table: its load, and that an attacker that chooses
// keys does not make it slow. The cost of an operation is counted in cache lines read, which
// determine the operation's time; benchmarks measure times.
#include "millrace/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "conntrack/test_support.h"
#include "core/sanitizers.h"

namespace millrace {
namespace {

using test::nth_key;
using test::random_key;
using enum Insertion::Outcome;

constexpr std::size_t kCapacity = kSanitized ? 10'000 : 50'000;

class RaceTest : public testing::Test {
 protected:
  using Keys = std::vector<KeyV4>;

  static Race<KeyV4> make(std::uint64_t secret = test::seed()) {
    auto table = Race<KeyV4>::create({kCapacity, 0, Pages::small, Secret::from_seed(secret)});
    EXPECT_TRUE(table.has_value());
    return std::move(*table);
  }
  static bool insert(Race<KeyV4>& table, const KeyV4& key) {
    return table.insert(key, table.hasher()(key), KeepAll{}).outcome == inserted;
  }
  /// Erases a key. Does nothing if the table has refused that key before.
  static void erase(Race<KeyV4>& table, const KeyV4& key) {
    const ConnId id = table.erase(key, table.hasher()(key));
    if (id != ConnId::none) table.release(id);
  }
  static void check(const Race<KeyV4>& table) {
    const auto ok = table.check_invariants();
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }

  KeyV4 fresh() { return nth_key<KeyV4>(next_++); }
  Keys fresh(std::size_t count) {
    Keys keys(count);
    for (KeyV4& key : keys) key = fresh();
    return keys;
  }
  /// Returns new keys that `wanted` accepts.
  Keys picked(std::size_t count, const std::function<bool(const KeyV4&)>& wanted) {
    Keys keys;
    while (keys.size() < count) {
      if (const KeyV4 key = fresh(); wanted(key)) keys.push_back(key);
    }
    return keys;
  }

  /// Cache lines that an operation reads or writes on average.
  struct Cost {
    double hit;        ///< lookup or erase of a key in the table: buckets and record
    double miss;       ///< lookup of a key that is not in the table: buckets
    double insertion;  ///< insertion after another key was erased: buckets and record
  };
  Cost cost(Race<KeyV4>& table, const Keys& present) {
    const auto average = [&table](const Keys& keys) {
      std::size_t buckets = 0;
      for (const KeyV4& key : keys) buckets += table.buckets_read(key);
      return static_cast<double>(buckets) / static_cast<double>(keys.size());
    };
    const double hit = average(present) + 1;
    const double miss = average(fresh(kCapacity));
    return {hit, miss, insertion_cost(table, present)};
  }
  /// Returns the average cost of inserting each key again after the next key was erased. An
  /// insertion reads the buckets of a miss, then those up to the key's new home.
  static double insertion_cost(Race<KeyV4>& table, const Keys& present) {
    std::size_t buckets = 0;
    const auto insert_counted = [&](const KeyV4& key) {
      const unsigned missed = table.buckets_read(key);
      insert(table, key);
      buckets += std::max(missed, table.buckets_read(key));
    };
    erase(table, present.front());
    for (std::size_t i = 0; i + 1 < present.size(); ++i) {
      erase(table, present[i + 1]);
      insert_counted(present[i]);
    }
    insert_counted(present.back());
    return static_cast<double>(buckets) / static_cast<double>(present.size()) + 1;
  }
  /// Returns the cost without an attack: with `live` keys, after `churned` of them were replaced.
  Cost peace(std::size_t live, std::size_t churned = 0) {
    auto table = make(test::seed() + 17);
    Keys keys = fresh(live);
    for (const KeyV4& key : keys) insert(table, key);
    churn(table, keys, churned);
    return cost(table, keys);
  }
  void churn(Race<KeyV4>& table, Keys& live, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      KeyV4& leaving = live[random_() % live.size()];
      erase(table, leaving);
      do leaving = fresh();
      while (!insert(table, leaving));
    }
  }
  static void expect_within_a_tenth(const Cost& attacked, const Cost& peaceful) {
    EXPECT_LE(attacked.hit, 1.1 * peaceful.hit);
    EXPECT_LE(attacked.miss, 1.1 * peaceful.miss);
    EXPECT_LE(attacked.insertion, 1.1 * peaceful.insertion);
    std::printf(
        "cache lines, under attack and without: hit %.3f and %.3f, miss %.3f and %.3f, insertion "
        "%.3f and %.3f\n",
        attacked.hit, peaceful.hit, attacked.miss, peaceful.miss, attacked.insertion,
        peaceful.insertion);
  }
  void attack_with(const Keys& keys) {
    auto table = make();
    std::size_t refused = 0;
    for (const KeyV4& key : keys) refused += !insert(table, key);
    EXPECT_LE(refused, keys.size() / 10'000);
    expect_within_a_tenth(cost(table, keys), peace(keys.size()));
    check(table);
  }

  std::mt19937_64 random_{test::seed()};

 private:
  testing::ScopedTrace repeat_{__FILE__, __LINE__, test::repeat()};
  std::uint64_t next_ = 0;
};

TEST_F(RaceTest, StaysWithinItsPromiseUnderChurnAtItsMaximumLoad) {
  auto table = make();
  Keys live;
  std::size_t refused = 0;
  while (live.size() < table.capacity()) {
    const KeyV4 key = fresh();
    if (insert(table, key)) {
      live.push_back(key);
    } else {
      ++refused;
    }
  }
  for (std::size_t i = 0; i < 20 * table.capacity(); ++i) {
    KeyV4& leaving = live[random_() % live.size()];
    erase(table, leaving);
    for (leaving = fresh(); !insert(table, leaving); leaving = fresh()) ++refused;
  }
  EXPECT_LE(refused, 20 * table.capacity() / 10'000);  // 0.01 %
  check(table);
}

// A key that stands, or is inserted, beyond its first home is a straggler, except the rare key with
// the same tag as an entry of its first home.
TEST_F(RaceTest, WhatGoesOnIsAStraggler) {
  auto table = make();
  Keys keys = fresh(kCapacity);
  for (const KeyV4& key : keys) insert(table, key);
  const auto expect_most = [](std::size_t marked, std::size_t of) {
    EXPECT_GT(of, kCapacity / 100);
    EXPECT_GE(static_cast<double>(marked), 0.99 * static_cast<double>(of));
  };
  const auto is_marked = [](const Stragglers& stragglers) {
    bool marked = false;
    stragglers.for_each(1, [&](std::size_t) { marked = true; });
    return marked;
  };
  std::size_t beyond = 0;
  std::size_t marked = 0;
  for (const KeyV4& key : keys) {
    const Hash hash = table.hasher()(key);
    const bool now = is_marked(table.prefetch_records({&key, 1}, {&hash, 1}));
    beyond += table.buckets_read(key) > 1;
    marked += now;
    EXPECT_LE(now, table.buckets_read(key) > 1);
  }
  expect_most(marked, beyond);
  beyond = marked = 0;
  for (KeyV4& leaving : keys) {
    erase(table, leaving);
    leaving = fresh();
    const Hash hash = table.hasher()(leaving);
    const Stragglers stragglers = table.prefetch_to_open({&leaving, 1}, {&hash, 1});
    EXPECT_TRUE(stragglers.may_open());
    insert(table, leaving);
    if (table.buckets_read(leaving) == 1) continue;
    ++beyond;
    marked += is_marked(stragglers);
  }
  expect_most(marked, beyond);
}

// Keys that an attacker can compute without the secret: they collide under the hash that other
// tables use by default.
TEST_F(RaceTest, KeysThatCollideUnderCrc32cDoNotSlowIt) {
  const auto crc32c = [](const KeyV4& key) {
    std::uint32_t crc = UINT32_MAX;
    for (std::size_t i = 0; i < sizeof(key); ++i) {
      crc ^= reinterpret_cast<const std::uint8_t*>(&key)[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
    }
    return crc;
  };
  attack_with(picked(kCapacity, [&](const KeyV4& key) { return crc32c(key) % 64 == 5; }));
}

TEST_F(RaceTest, KeysThatCollideUnderAnotherSecretDoNotSlowIt) {
  const Hasher other(Secret::from_seed(test::seed() + 1));
  attack_with(picked(kCapacity, [&](const KeyV4& key) { return other(key) >> 58 == 5; }));
}

// Keys that collide under each of several secrets stand for keys that collide under every secret.
TEST_F(RaceTest, KeysThatCollideUnderManySecretsDoNotSlowIt) {
  std::vector<Hasher> others;
  for (std::uint64_t i = 1; i <= 6; ++i) others.emplace_back(Secret::from_seed(test::seed() + i));
  attack_with(picked(kCapacity, [&](const KeyV4& key) {
    return std::ranges::all_of(others, [&](const Hasher& h) { return h(key) >> 63 == 0; });
  }));
}

// Keys that differ little: all values of two bytes, at several pairs of positions. A weak hash
// would put such keys into few buckets under any secret.
TEST_F(RaceTest, StructuredKeysDoNotSlowIt) {
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 5}, {3, 7}, {8, 9}, {9, 11}, {2, 10}, {4, 8}}) {
    Keys keys;
    for (std::uint32_t n = 0; n < kCapacity; ++n) {
      KeyV4 key = nth_key<KeyV4>(0);
      auto* bytes = reinterpret_cast<std::uint8_t*>(&key);
      bytes[a] = static_cast<std::uint8_t>(n);
      bytes[b] = static_cast<std::uint8_t>(n >> 8);
      keys.push_back(key);
    }
    SCOPED_TRACE("bytes " + std::to_string(a) + " and " + std::to_string(b));
    attack_with(keys);
  }
}

// The attacker fills tables under the secret of the attacked table, and keeps the keys that were
// slow. Then half of the keys that are inserted and erased are such keys.
TEST_F(RaceTest, KeysThatWereSlowBeforeDoNotSlowIt) {
  Keys slow;
  while (slow.size() < kCapacity) {
    auto table = make();
    const Keys tried = fresh(kCapacity);
    for (const KeyV4& key : tried) insert(table, key);
    std::ranges::copy_if(tried, std::back_inserter(slow),
                         [&](const KeyV4& key) { return table.buckets_read(key) > 1; });
  }
  auto table = make();
  Keys live = fresh(kCapacity);
  const std::size_t half = kCapacity / 2;
  std::ranges::copy_n(slow.begin(), half, live.begin());
  for (const KeyV4& key : live) insert(table, key);
  for (std::size_t i = 0; i < 4 * kCapacity; ++i) {
    const std::size_t which = random_() % kCapacity;
    erase(table, live[which]);
    do {
      if (which < half) std::swap(live[which], slow[half + random_() % (slow.size() - half)]);
      if (which >= half) live[which] = fresh();
    } while (!insert(table, live[which]));
  }
  expect_within_a_tenth(cost(table, live), peace(kCapacity, 4 * kCapacity));
  check(table);
}

// Filters that were never cleared would send every lookup to the second home after a while.
TEST_F(RaceTest, TwentyCapacitiesOfChurnDoNotPolluteTheFilters) {
  auto table = make();
  Keys live = fresh(kCapacity);
  for (const KeyV4& key : live) insert(table, key);
  churn(table, live, kCapacity);
  const Cost before = cost(table, live);
  churn(table, live, 20 * kCapacity);
  expect_within_a_tenth(cost(table, live), before);
  check(table);
}

}  // namespace
}  // namespace millrace
