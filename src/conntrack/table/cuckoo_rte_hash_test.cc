// Tests of `cuckoo` and `cuckoo-ext` beyond the common suite: DPDK's environment, the heaps'
// memory, and chained buckets.
#include "conntrack/table/cuckoo_rte_hash.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/test_support.h"
#include "core/dpdk_eal.h"

namespace millrace {
namespace {

using test::nth_key;
using enum Insertion::Outcome;

template <class T>
test::Reclaiming<T> made(std::size_t capacity, Pages pages = Pages::small, double headroom = 0) {
  auto table =
      test::Reclaiming<T>::create({capacity, 8, pages, Secret::from_seed(test::seed()), headroom});
  EXPECT_TRUE(table.has_value()) << table.error().message;
  return std::move(*table);
}

template <class T, class K>
Insertion insert(T& table, const K& key) {
  return table.insert(key, table.hasher()(key), KeepAll{});
}

template <class T, class K>
ConnId find(const T& table, const K& key) {
  const Hash hash = table.hasher()(key);
  ConnId id{};
  table.find({&key, 1}, {&hash, 1}, {&id, 1});
  return id;
}

template <class T>
void check(const T& table) {
  const auto ok = table.check_invariants();
  ASSERT_TRUE(ok.has_value()) << ok.error().message;
}

TEST(DpdkEal, StartsOnceSilentlyAndLeavesTheAffinityAlone) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto first = start_dpdk_eal();
  const auto second = start_dpdk_eal();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(first.has_value()) << first.error().message;
  EXPECT_TRUE(second.has_value());
  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(CuckooRteHash, TablesBesideEachOtherDoNotMix) {
  auto a = made<Cuckoo<KeyV4>>(1000);
  auto b = made<CuckooExtendable<KeyV4>>(1000);
  auto c = made<Cuckoo<KeyV6>>(1000);
  for (std::uint64_t n = 0; n < 1000; ++n) {
    ASSERT_EQ(insert(a, nth_key<KeyV4>(n)).outcome, inserted);
    ASSERT_EQ(insert(b, nth_key<KeyV4>(n + 500)).outcome, inserted);
    ASSERT_EQ(insert(c, nth_key<KeyV6>(n)).outcome, inserted);
  }
  EXPECT_EQ(find(b, nth_key<KeyV4>(0)), ConnId::none);
  EXPECT_NE(find(a, nth_key<KeyV4>(0)), ConnId::none);
  check(a);
  check(b);
  check(c);
}

TEST(CuckooRteHash, AMovedTableIsTheSameAndTheOldOneIsEmpty) {
  auto a = made<Cuckoo<KeyV4>>(1000);
  const ConnId id = insert(a, nth_key<KeyV4>(1)).id;
  auto b = std::move(a);
  EXPECT_EQ(find(b, nth_key<KeyV4>(1)), id);
  auto c = made<Cuckoo<KeyV4>>(1000);
  c = std::move(b);
  EXPECT_EQ(find(c, nth_key<KeyV4>(1)), id);
  check(c);
}

// DPDK has 32 heaps in all, so tables that did not give back theirs would soon use up all heaps.
TEST(CuckooRteHash, ADestroyedTableGivesItsHeapBack) {
  for (int i = 0; i < 100; ++i) {
    auto table = made<CuckooExtendable<KeyV6>>(1000);
    ASSERT_EQ(insert(table, nth_key<KeyV6>(1)).outcome, inserted);
  }
}

TEST(CuckooRteHash, MoreTablesThanDpdkHasHeapsAreRefusedInWords) {
  std::vector<Cuckoo<KeyV4>> tables;
  for (;;) {
    auto table = Cuckoo<KeyV4>::create({.capacity = 10, .pages = Pages::small});
    if (!table) {
      EXPECT_NE(table.error().message.find("32"), std::string::npos) << table.error().message;
      break;
    }
    tables.push_back(std::move(*table));
    ASSERT_LT(tables.size(), 100U);
  }
  EXPECT_GE(tables.size(), 16U);
  tables.pop_back();
  EXPECT_TRUE(Cuckoo<KeyV4>::create({.capacity = 10, .pages = Pages::small}).has_value());
}

// A table lies on the pages that were asked for, whatever EAL was started with, as it maps its own
// memory.
TEST(CuckooRteHash, LiesOnThePagesAskedFor) {
  EXPECT_EQ((made<Cuckoo<KeyV4>>(200'000, Pages::small).pages()), Pages::small);
  const auto best = Memory::map(std::size_t{64} << 20, Pages::transparent);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ((made<Cuckoo<KeyV4>>(200'000, Pages::transparent).pages()), best->pages());
}

template <class T>
class CuckooSize : public testing::Test {};
using Tables =
    testing::Types<Cuckoo<KeyV4>, Cuckoo<KeyV6>, CuckooExtendable<KeyV4>, CuckooExtendable<KeyV6>>;
TYPED_TEST_SUITE(CuckooSize, Tables);

// The memory that is computed for rte_hash suffices at every size, and the number of slots is a
// power of two.
TYPED_TEST(CuckooSize, APromiseOfAPowerOfTwoTakesThatManySlots) {
  for (unsigned n = 11; n <= 20; ++n) {  // smaller tables need more slots, for draining ids
    const auto promise =
        static_cast<std::size_t>(TypeParam::kMaxLoad * static_cast<double>(1U << n));
    const auto table = made<TypeParam>(promise);
    EXPECT_EQ(table.slots(), 1U << n);
    EXPECT_EQ(table.records().count(), (1U << n) - 1);
    EXPECT_LE(table.memory_bytes() - table.records().memory_bytes(), (70U << n) + (2U << 20));
    EXPECT_EQ(made<TypeParam>(promise + 1).slots(), 2U << n);
  }
}

template <class T>
void lives_under_churn_at_its_promise() {
  std::mt19937_64 random(test::seed());
  auto table = made<T>(static_cast<std::size_t>(T::kMaxLoad * 65536));
  std::vector<std::uint64_t> live;
  std::uint64_t next = 0;
  while (live.size() < table.capacity()) {
    ASSERT_EQ(insert(table, nth_key<KeyV4>(next)).outcome, inserted);
    live.push_back(next++);
  }
  for (std::size_t i = 0; i < 5 * table.capacity(); ++i) {
    std::uint64_t& leaving = live[random() % live.size()];
    const KeyV4 key = nth_key<KeyV4>(leaving);
    ASSERT_NE(table.erase(key, table.hasher()(key)), ConnId::none);
    if (i % 32 == 0) table.reclaim();
    ASSERT_EQ(insert(table, nth_key<KeyV4>(next)).outcome, inserted) << "turn " << i;
    leaving = next++;
  }
  for (const std::uint64_t n : live) ASSERT_NE(find(table, nth_key<KeyV4>(n)), ConnId::none);
  check(table);
}

TEST(CuckooRteHash, RefusesNothingUnderChurnAtItsPromise) {
  SCOPED_TRACE(test::repeat());
  lives_under_churn_at_its_promise<Cuckoo<KeyV4>>();
  lives_under_churn_at_its_promise<CuckooExtendable<KeyV4>>();
}

TEST(CuckooExtendable, LosesNothingAt120PercentOfItsPromise) {
  SCOPED_TRACE(test::repeat());
  for (const std::size_t capacity : {1U, 1000U, 60'000U, 62'000U}) {
    auto table = made<CuckooExtendable<KeyV4>>(capacity, Pages::small, 0.25);
    const std::size_t all = capacity + capacity / 5;
    std::map<std::uint64_t, ConnId> ids;
    for (std::uint64_t n = 0; n < all; ++n) {
      const Insertion in = insert(table, nth_key<KeyV4>(n));
      ASSERT_EQ(in.outcome, inserted);
      ids[n] = in.id;
    }
    for (const auto& [n, id] : ids) ASSERT_EQ(find(table, nth_key<KeyV4>(n)), id);
    check(table);
  }
}

// All hashes are equal, so that the keys stand in one long chain. The test erases keys in random
// order until 10 are left. Whenever a multiple of 64 keys is left, lookups must find all of these.
TEST(CuckooExtendable, AChainGrowsToTheTablesEndAndShrinksAgain) {
  SCOPED_TRACE(test::repeat());
  auto table = made<CuckooExtendable<KeyV6>>(900);
  constexpr Hash kHash = 42;
  std::map<std::uint64_t, ConnId> ids;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t n = 0; ids.size() < table.capacity(); ++n) {
      if (!ids.contains(n)) ids[n] = table.insert(nth_key<KeyV6>(n), kHash, KeepAll{}).id;
    }
    std::mt19937_64 random(test::seed());
    while (ids.size() > 10) {
      const auto at = std::next(ids.begin(), static_cast<std::ptrdiff_t>(random() % ids.size()));
      ASSERT_EQ(table.erase(nth_key<KeyV6>(at->first), kHash), at->second);
      ids.erase(at);
      if (random() % 32 == 0) table.reclaim();
      if (ids.size() % 64 != 0) continue;
      for (const auto& [n, id] : ids) {
        const KeyV6 key = nth_key<KeyV6>(n);
        ConnId found{};
        table.find({&key, 1}, {&kHash, 1}, {&found, 1});
        ASSERT_EQ(found, id);
      }
    }
    table.reclaim();
  }
}

// Draining ids are the last in rte_hash's queue of free positions, and this order keeps them from
// being given out. The test fills a table until only draining ids are left in the queue.
TEST(CuckooExtendable, DrainingIdsWaitAtTheEndOfTheQueue) {
  SCOPED_TRACE(test::repeat());
  auto table = made<CuckooExtendable<KeyV4>>(900);
  std::mt19937_64 random(test::seed());
  std::map<std::uint64_t, ConnId> live;
  std::vector<bool> draining(table.records().count());
  std::uint64_t next = 0;
  for (int burst = 0; burst < 200; ++burst) {
    for (std::uint64_t step = random() % 300; step > 0; --step) {
      if (random() % 8 == 0 && !live.empty()) {
        const auto at =
            std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        const KeyV4 key = nth_key<KeyV4>(at->first);
        ASSERT_EQ(table.erase(key, table.hasher()(key)), at->second);
        draining[index(at->second)] = true;
        live.erase(at);
        continue;
      }
      const Insertion in = insert(table, nth_key<KeyV4>(next));
      if (in.outcome == full) continue;
      ASSERT_FALSE(draining[index(in.id)]) << "burst " << burst;
      live[next++] = in.id;
    }
    check(table);
    table.reclaim();
    draining.assign(draining.size(), false);
  }
  EXPECT_GT(live.size(), 900U);
}

/// Rates even ids below the newcomer, and odd ids above it.
struct Odd {
  std::uint8_t operator()(ConnId id) const {
    return id == ConnId::none ? 5 : static_cast<std::uint8_t>(index(id) % 2 == 0 ? 3 : 9);
  }
};

// Eviction depends on the right two buckets of a hash: the newcomer must fit into the slot of the
// evicted entry.
template <class T>
void displaces_in_its_own_buckets() {
  auto table = made<T>(60'000);
  std::vector<KeyV4> key_of(table.records().count());
  std::uint64_t next = 0;
  for (std::size_t refusals = 0; refusals < 100; ++next) {
    const Insertion in = insert(table, nth_key<KeyV4>(next));
    if (in.outcome == inserted) key_of[index(in.id)] = nth_key<KeyV4>(next);
    refusals += in.outcome == full;
  }
  const std::size_t size = table.size();
  for (std::size_t displaced = 0; displaced < 3000; ++next) {
    const KeyV4 key = nth_key<KeyV4>(next);
    const Insertion in = table.insert(key, table.hasher()(key), Odd{});
    if (next % 32 == 0) table.reclaim();
    if (in.outcome == full) {  // all sixteen candidates are worth more
      ASSERT_EQ(in.displaced, ConnId::none);
      continue;
    }
    if (in.displaced != ConnId::none) {
      ++displaced;
      ASSERT_EQ(index(in.displaced) % 2, 0U);
      ASSERT_EQ(find(table, key_of[index(in.displaced)]), ConnId::none);
    }
    ASSERT_EQ(find(table, key), in.id);
    key_of[index(in.id)] = key;
  }
  EXPECT_GE(table.size(), size);
  check(table);
}

// If every position is live or draining, the position of an evicted entry would queue behind the
// draining positions: the table refuses newcomers until the draining ids are released.
TEST(CuckooExtendable, AFullTableDisplacesOnlyWhenNothingDrains) {
  auto table = made<CuckooExtendable<KeyV4>>(400);
  std::uint64_t next = 0;
  while (insert(table, nth_key<KeyV4>(next)).outcome == inserted) ++next;
  EXPECT_EQ(table.size(), table.records().count());
  const auto displacing = [&](std::uint64_t n) {
    const KeyV4 key = nth_key<KeyV4>(n);
    return table.insert(key, table.hasher()(key), Odd{});
  };
  const KeyV4 leaving = nth_key<KeyV4>(0);
  const ConnId gone = table.erase(leaving, table.hasher()(leaving));
  for (std::uint64_t n = 0; n < 50; ++n) EXPECT_EQ(displacing(1000 + n).outcome, full);
  check(table);
  table.reclaim();
  EXPECT_EQ(displacing(2000).id, gone);
  std::size_t displaced = 0;
  for (std::uint64_t n = 0; n < 50; ++n)
    displaced += displacing(3000 + n).displaced != ConnId::none;
  EXPECT_GT(displaced, 10U);
  EXPECT_EQ(table.size(), table.records().count());
  check(table);
}

TEST(CuckooRteHash, DisplacesInTheNewcomersOwnBuckets) {
  SCOPED_TRACE(test::repeat());
  displaces_in_its_own_buckets<Cuckoo<KeyV4>>();
  displaces_in_its_own_buckets<CuckooExtendable<KeyV4>>();
}

}  // namespace
}  // namespace millrace
