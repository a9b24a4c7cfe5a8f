// Support for the tests of `cuckoo++` and `horton`: a table with the keys that must be in it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"
#include "millrace/table.h"

namespace millrace::test {

/// Drives a table, and remembers the id of each key.
template <class T, class K>
class Driven {
 public:
  struct Entry {
    K key;
    ConnId id;
  };

  explicit Driven(const TableConfig& config, std::uint64_t salt = 0)
      : table(std::move(*Reclaiming<T>::create(config))), random(seed() + salt) {}
  static TableConfig sized(std::size_t capacity, double headroom = 0, std::uint64_t salt = 0) {
    return {capacity, 0, Pages::small, Secret::from_seed(seed() + salt), headroom};
  }

  Hash hash(const K& key) const { return table.hasher()(key); }
  ConnId find(const K& key) const {
    const Hash h = hash(key);
    ConnId id{};
    table.prefetch({&h, 1});
    table.prefetch_records({&key, 1}, {&h, 1});
    table.find({&key, 1}, {&h, 1}, {&id, 1});
    return id;
  }
  Insertion::Outcome insert(const K& key) {
    const Insertion in = table.insert(key, hash(key), KeepAll{});
    EXPECT_EQ(in.displaced, ConnId::none);
    if (in.outcome == Insertion::Outcome::inserted) live.push_back({key, in.id});
    if (in.outcome == Insertion::Outcome::full) ++refused;
    return in.outcome;
  }
  /// Inserts a random key. False if the table refuses the key or has it already.
  bool insert_one() { return insert(random_key<K>(random)) == Insertion::Outcome::inserted; }
  /// Inserts random keys until the table accepts one. Fails after 1000 keys.
  void insert_surely() {
    for (int tries = 0; tries < 1000; ++tries) {
      if (insert_one()) return;
    }
    FAIL() << "the table has accepted none of 1000 keys";
  }
  void erase_at(std::size_t which) {
    const Entry leaving = live[which];
    live[which] = live.back();
    live.pop_back();
    ASSERT_EQ(table.erase(leaving.key, hash(leaving.key)), leaving.id);
    table.reclaim();
  }
  void erase_one() { erase_at(random() % live.size()); }
  void fill(std::size_t size) {
    while (live.size() < size && refused < size) insert_one();
  }
  /// Replaces a random entry by a new one, `times` times.
  void churn(std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      erase_one();
      insert_surely();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  void check() const {
    ASSERT_EQ(table.size(), live.size());
    for (const Entry& entry : live) ASSERT_EQ(find(entry.key), entry.id);
    const auto ok = table.check_invariants();
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }

  Reclaiming<T> table;
  std::mt19937_64 random;
  std::vector<Entry> live;
  std::size_t refused = 0;
};

/// Fills a table to its capacity and replaces its entries twenty times over: at most 0.01 % of the
/// insertions are refused.
template <class T, class K>
void expect_promise_kept_under_churn(std::size_t capacity) {
  Driven<T, K> driven(Driven<T, K>::sized(capacity));
  driven.fill(capacity);
  driven.churn(20 * capacity);
  EXPECT_LE(driven.refused, 20 * capacity / 10'000);  // 0.01 %
  driven.check();
}

/// Inserts 1.2 times the capacity into a table with records for 1.25 times the capacity: the table
/// accepts what its index can hold, returns *full* for the rest, and loses nothing.
template <class T, class K>
void expect_overload_survived(std::size_t index_slots) {
  const auto capacity = static_cast<std::size_t>(T::kMaxLoad * static_cast<double>(index_slots));
  Driven<T, K> driven(Driven<T, K>::sized(capacity, 0.25));
  EXPECT_LE(driven.table.memory_bytes() - driven.table.records().memory_bytes(),
            14 * index_slots + (std::size_t{3} << 12))
      << "the index is larger than the promised load needs";
  for (std::size_t n = 0; n < capacity * 6 / 5; ++n) driven.insert_one();
  EXPECT_GE(driven.live.size(), index_slots / 100 * 99);
  EXPECT_EQ(driven.live.size() + driven.refused, capacity * 6 / 5);
  driven.check();
  while (driven.live.size() > capacity) driven.erase_one();
  driven.refused = 0;
  driven.churn(capacity);
  EXPECT_LE(driven.refused, capacity / 10'000);
  driven.check();
}

/// Inserts keys of a few buckets only, in a table with room elsewhere: this makes many moves and
/// refusals, and counters near their limits.
template <class T, class K>
void expect_crowding_survived(std::uint32_t buckets_used) {
  for (std::uint64_t salt = 0; salt < (kSanitized ? 2 : 10); ++salt) {
    Driven<T, K> driven(Driven<T, K>::sized(700, 0, salt), salt);
    for (int step = 0; step < 4000 && !testing::Test::HasFatalFailure(); ++step) {
      K key = random_key<K>(driven.random);
      while ((driven.hash(key) & 0x7f) >= buckets_used) key = random_key<K>(driven.random);
      driven.insert(key);
      while (driven.random() % 8 < 3 && !driven.live.empty()) driven.erase_one();
      if (step % 64 == 0) driven.check();
    }
    while (!driven.live.empty()) driven.erase_one();
    driven.check();
    EXPECT_EQ(driven.table.statistics().buckets_per_miss, 1.0)
        << "a lookup in the empty table reads two buckets";
  }
}

}  // namespace millrace::test
