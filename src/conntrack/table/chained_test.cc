// Tests of `chained` beyond the contract of every table.
#include "conntrack/table/chained.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "conntrack/test_support.h"

namespace millrace {
namespace {

using test::nth_key;
using enum Insertion::Outcome;

template <class K>
Insertion insert(Chained<K>& table, const K& key) {
  return table.insert(key, table.hasher()(key), KeepAll{});
}

template <class K>
void check(const Chained<K>& table) {
  const auto ok = table.check_invariants();
  ASSERT_TRUE(ok.has_value()) << ok.error().message;
}

// Inserts every second key and looks up all keys in one burst, which has more keys than `find`
// searches side by side. With few buckets the chains are long.
template <class K>
void finds_all(std::size_t buckets) {
  SCOPED_TRACE(buckets);
  const TableConfig config{500, 0, Pages::small, Secret::from_seed(test::seed())};
  auto table = Chained<K>::create(config, buckets);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->buckets(), buckets);
  std::vector<K> keys;
  std::vector<ConnId> expected;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    keys.push_back(nth_key<K>(n));
    expected.push_back(n % 2 == 0 ? insert(*table, keys.back()).id : ConnId::none);
  }
  check(*table);
  std::vector<Hash> hashes(keys.size());
  std::vector<ConnId> found(keys.size());
  table->hasher()(std::span<const K>(keys), std::span<Hash>(hashes));
  table->prefetch(hashes);
  table->prefetch_records(keys, hashes);
  table->find(keys, hashes, found);
  EXPECT_EQ(found, expected);
}

TEST(Chained, TakesAnyNumberOfBuckets) {
  SCOPED_TRACE(test::repeat());
  for (const std::size_t buckets : {1U, 7U, 500U, 4099U}) {
    finds_all<KeyV4>(buckets);
    finds_all<KeyV6>(buckets);
  }
  EXPECT_FALSE(Chained<KeyV4>::create({.capacity = 1}, 0).has_value());
  EXPECT_FALSE(Chained<KeyV4>::create({.capacity = 1}, std::size_t{1} << 32).has_value());
}

// Headroom is a share from 0 to 1.
TEST(Chained, RefusesHeadroomOutOfItsRange) {
  const auto made = [](double headroom) {
    return Chained<KeyV4>::create({.capacity = 1, .headroom = headroom}).has_value();
  };
  EXPECT_TRUE(made(0) && made(1));
  for (const double wrong : {-0.01, 1.01, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(made(wrong)) << wrong;
}

// The link lies behind the state, for every size of the state.
template <class K>
void keeps_apart(std::size_t state_bytes) {
  SCOPED_TRACE(state_bytes);
  const TableConfig config{100, state_bytes, Pages::small, Secret::from_seed(test::seed())};
  auto table = Chained<K>::create(config, 3);
  ASSERT_TRUE(table.has_value());
  std::vector<ConnId> ids;
  for (std::uint64_t n = 0; n < 100; ++n) {
    ids.push_back(insert(*table, nth_key<K>(n)).id);
    std::memset(table->records().state(ids.back()), 0xff, state_bytes);
  }
  check(*table);
  for (const ConnId id : ids) {
    for (std::size_t i = 0; i < state_bytes; ++i)
      ASSERT_EQ(table->records().state(id)[i], std::byte{0xff});
  }
}

TEST(Chained, LinksAndStateKeepApart) {
  SCOPED_TRACE(test::repeat());
  for (const std::size_t bytes : {0U, 3U, 4U, 12U, 36U, 40U, 100U, 204U}) {
    keeps_apart<KeyV4>(bytes);
    keeps_apart<KeyV6>(bytes);
  }
}

// Overload lengthens chains: a table with a headroom of 0.25 accepts 125 % of its capacity.
TEST(Chained, HeadroomHoldsWhatItSays) {
  SCOPED_TRACE(test::repeat());
  auto table = Chained<KeyV4>::create({.capacity = 10'000,
                                       .pages = Pages::small,
                                       .secret = Secret::from_seed(test::seed()),
                                       .headroom = 0.25});
  ASSERT_TRUE(table.has_value());
  for (std::uint64_t n = 0; n < 12'500; ++n)
    ASSERT_EQ(insert(*table, nth_key<KeyV4>(n)).outcome, inserted);
  check(*table);
}

}  // namespace
}  // namespace millrace
