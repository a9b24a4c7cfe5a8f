// Comparison of `dhash` with the paper on DHash: the theory of section IV, the workload of section
// V.A (10^6 sessions in 10^5 buckets), tables IV and V.
#include "conntrack/table/dhash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "conntrack/table/dhash_sessions.h"
#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"

namespace millrace {
namespace {

using test::nth_key;
using test::random_key;
using enum Insertion::Outcome;

constexpr std::size_t kSessions = 1'000'000;
constexpr std::size_t kBuckets = 100'000;

/// A good digest of `kBits` bits: short digests are equal often enough to be counted.
template <unsigned kBits>
struct ShortSignature {
  static constexpr std::string_view kPlainName = "dhash-short-plain";
  static constexpr std::string_view kSummary = "for tests";
  static constexpr bool kSymmetric = true;

  template <class K>
  static std::uint32_t of(const K& key) {
    std::uint64_t mixed = 0;
    for (std::size_t i = 0; i < sizeof(K); i += 8) {
      mixed = (mixed ^ key.word(i)) * 0x9fb21c651e98df25;
      mixed ^= mixed >> 32;
    }
    return static_cast<std::uint32_t>(mixed * 0xff51afd7ed558ccd >> (64 - kBits));
  }
};

/// Makes a table of exactly that many buckets.
template <class T>
test::Reclaiming<T> with_buckets(std::size_t buckets) {
  const auto capacity = static_cast<std::size_t>(static_cast<double>(buckets * 16) * T::kMaxLoad);
  auto table = test::Reclaiming<T>::create({.capacity = capacity,
                                            .pages = Pages::transparent,
                                            .secret = Secret::from_seed(test::seed())});
  EXPECT_TRUE(table.has_value());
  EXPECT_EQ(table->buckets(), buckets);
  return std::move(*table);
}

template <class T, class K>
Insertion insert(T& table, const K& key) {
  return table.insert(key, table.hash_of(key), KeepAll{});
}

template <class T, class K>
ConnId find(const T& table, const K& key) {
  const Hash hash = table.hash_of(key);
  ConnId id{};
  table.prefetch({&hash, 1});
  table.prefetch_records({&key, 1}, {&hash, 1});
  table.find({&key, 1}, {&hash, 1}, {&id, 1});
  return id;
}

template <class T, class K>
void fill(T& table, const std::vector<K>& keys) {
  for (const K& key : keys) ASSERT_EQ(insert(table, key).outcome, inserted);
}

std::vector<KeyV4> random_keys(std::size_t count) {
  std::mt19937_64 random(test::seed());
  std::vector<KeyV4> keys(count);
  for (KeyV4& key : keys) key = random_key<KeyV4>(random);
  return keys;
}

void expect_near(double measured, dhash_theory::Estimate theory, const char* what) {
  EXPECT_NEAR(measured, theory.mean, 5 * std::sqrt(theory.variance)) << what;
}

template <class T>
void check(const T& table) {
  const auto ok = table.check_invariants();
  ASSERT_TRUE(ok.has_value()) << ok.error().message;
}

// Tests the theory of sections IV.B and V.A, for entries that are inserted and never erased.
TEST(DHash, ConflictListsAndFalsePositivesAreThoseOfTheTheory) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  SCOPED_TRACE(test::repeat());
  const std::vector<KeyV4> keys = random_keys(kSessions);
  const auto in_lists = dhash_theory::in_lists_after_filling(kSessions, kBuckets);
  const auto run = [&]<unsigned kBits>(std::integral_constant<unsigned, kBits>) {
    auto table = with_buckets<BasicDHash<KeyV4, ShortSignature<kBits>, true>>(kBuckets);
    fill(table, keys);
    const DHashStatistics counted = table.statistics(keys);
    EXPECT_EQ(counted.hits, kSessions);
    expect_near(static_cast<double>(counted.entries_in_lists), in_lists, "in lists");
    expect_near(static_cast<double>(counted.false_positives),
                dhash_theory::false_positives(kSessions, kBuckets, std::exp2(kBits)),
                "false positives");
    check(table);
  };
  run(std::integral_constant<unsigned, 12>{});
  run(std::integral_constant<unsigned, 16>{});
  EXPECT_NEAR(dhash_theory::false_positives(kSessions, kBuckets, std::exp2(32)).mean, 1.16e-3,
              0.01e-3);  // the paper's figure for 32 bits
}

// Compares the counts with table V, and with the theory of linear probing in sixteen slots.
TEST(DHash, MajorLocationSparesComparisons) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  SCOPED_TRACE(test::repeat());
  const std::vector<KeyV4> keys = random_keys(kSessions);
  const auto run = [&]<bool kMajor>(std::bool_constant<kMajor>) {
    auto table = with_buckets<BasicDHash<KeyV4, CrcPairSignature, kMajor>>(kBuckets);
    fill(table, keys);
    const DHashStatistics counted = table.statistics(keys);
    const auto theory = dhash_theory::successful_search(kSessions, kBuckets, kMajor);
    EXPECT_NEAR(counted.comparisons_a_lookup(), theory.comparisons, 0.02);
    EXPECT_NEAR(counted.first_hit_ratio(), theory.first_hits, 0.003);
    EXPECT_EQ(counted.second_comparisons, 0U) << "each direction has its own entry";
    return counted;
  };
  const DHashStatistics with = run(std::true_type{});
  const DHashStatistics without = run(std::false_type{});
  EXPECT_LT(2 * with.comparisons, without.comparisons);  // the paper has 3.0 and 6.8 a lookup
  EXPECT_EQ(with.entries_in_lists, without.entries_in_lists);
}

// Entries never move, so churn leaves entries in lists beside free slots, as many as Erlang's
// formula says.
TEST(DHash, ThePoolSufficesUnderChurnAtThePromisedLoad) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  auto table = with_buckets<DHash<KeyV4>>(2048);
  std::vector<KeyV4> live;
  const auto fresh = [&] {
    for (;;) {
      const KeyV4 key = random_key<KeyV4>(random);
      const auto outcome = insert(table, key).outcome;
      EXPECT_NE(outcome, full);
      if (outcome != present) return key;
    }
  };
  while (live.size() < table.capacity()) live.push_back(fresh());
  double in_lists = 0;
  constexpr unsigned kSamples = 10;
  for (unsigned sample = 0; sample < 2 * kSamples; ++sample) {
    for (std::size_t i = 0; i < table.capacity(); ++i) {
      KeyV4& leaving = live[random() % live.size()];
      ASSERT_NE(table.erase(leaving, table.hash_of(leaving)), ConnId::none);
      if (i % 32 == 0) table.reclaim();
      leaving = fresh();
    }
    if (sample >= kSamples)
      in_lists += static_cast<double>(table.statistics({}).entries_in_lists) / kSamples;
  }
  const auto theory = dhash_theory::in_lists_under_churn(static_cast<double>(live.size()),
                                                         static_cast<double>(table.buckets()));
  expect_near(in_lists, theory, "in lists");
  EXPECT_NEAR(theory.mean / static_cast<double>(live.size()), 0.0604, 0.0001);  // Erlang B(16, 12)
  check(table);
}

TEST(DHash, HeadroomHoldsWhatItSays) {
  SCOPED_TRACE(test::repeat());
  auto table = DHash<KeyV6>::create({.capacity = 12'288,
                                     .pages = Pages::small,
                                     .secret = Secret::from_seed(test::seed()),
                                     .headroom = 0.25});
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->buckets() * 16, 16'384U);
  for (std::uint64_t n = 0; n < 12'288 * 5 / 4; ++n)
    ASSERT_EQ(insert(*table, nth_key<KeyV6>(n)).outcome, inserted);
  check(*table);
}

// The signature of the opposite direction has its halves swapped if the algorithm is asymmetric,
// and is equal if it is symmetric. The major location is the same in both directions.
template <class Signature, class K>
void directions_agree(const K& key) {
  const std::uint32_t there = Signature::of(key);
  const std::uint32_t back = Signature::of(reversed(key));
  EXPECT_EQ(back, Signature::kSymmetric ? there : halves_swapped(there));
  EXPECT_EQ(major_location<Signature>(back), major_location<Signature>(there));
}

template <class K>
void all_directions_agree() {
  for (const K& key : site_sessions<K>(1000, test::seed())) {
    directions_agree<XorSignature>(key);
    directions_agree<CrcOfXorSignature>(key);
    directions_agree<XorOfCrcSignature>(key);
    directions_agree<CrcPairSignature>(key);
  }
}

TEST(DHash, SignaturesOfBothDirectionsAgree) {
  SCOPED_TRACE(test::repeat());
  all_directions_agree<KeyV4>();
  all_directions_agree<KeyV6>();
}

// Known results: a signature is the same on every machine.
TEST(DHash, SignaturesAreThoseOfThePaper) {
  EXPECT_EQ(detail::crc32c_portable(0xffffffff, 0x0807060504030201) ^ 0xffffffff, 0x46891f81U);
  KeyV4 key = nth_key<KeyV4>(0x1234'0403'0201ULL);
  key.destination = {{9, 8, 7, 6}};
  EXPECT_EQ(XorSignature::of(key), 0x04030201U ^ 0x06070809U ^ 0x1234U ^ 443U ^ 17U);
  for (std::uint64_t word : {0ULL, 1ULL, 0x0123456789abcdefULL})
    EXPECT_EQ(detail::crc32c(7, word), detail::crc32c_portable(7, word));
}

// Algorithm 3 as printed cannot tell ports apart: a CRC is linear.
TEST(DHash, XorOfCrcsForgetsThePorts) {
  KeyV4 a = nth_key<KeyV4>(1);
  KeyV4 b = a;
  b.source_port = 4711;
  EXPECT_EQ(XorOfCrcSignature::of(a), XorOfCrcSignature::of(b));
  EXPECT_NE(CrcOfXorSignature::of(a), CrcOfXorSignature::of(b));
}

/// A broken digest that is the same for every key, for words that mark a free or draining slot or
/// resemble such a word.
template <std::uint32_t kValue>
struct ConstantSignature {
  static constexpr std::string_view kPlainName = "dhash-constant-plain";
  static constexpr std::string_view kSummary = "for tests";
  static constexpr bool kSymmetric = false;
  template <class K>
  static std::uint32_t of(const K&) {
    return kValue;
  }
};

template <std::uint32_t kValue>
void survives() {
  auto table = with_buckets<BasicDHash<KeyV4, ConstantSignature<kValue>, true, true>>(2);
  std::vector<ConnId> ids;
  for (std::uint64_t n = 0; n < 60; ++n) ids.push_back(insert(table, nth_key<KeyV4>(n)).id);
  check(table);
  for (std::uint64_t n = 0; n < 60; n += 3) {
    const KeyV4 key = nth_key<KeyV4>(n);
    ASSERT_EQ(table.erase(key, table.hash_of(key)), ids[n]);
    ids[n] = ConnId::none;
  }
  check(table);
  table.reclaim();
  check(table);
  for (std::uint64_t n = 0; n < 60; ++n) {
    EXPECT_EQ(find(table, nth_key<KeyV4>(n)), ids[n]) << std::hex << kValue;
    EXPECT_EQ(find(table, reversed(nth_key<KeyV4>(n))), ids[n]) << std::hex << kValue;
  }
}

TEST(DHash, SignaturesThatLookLikeMarksAreSurvived) {
  survives<0>();
  survives<0x80000000>();
  survives<0x00008000>();
  survives<0x7fffffff>();
  survives<0xffffffff>();
  survives<0xffff7fff>();
  survives<0x80000001>();
  survives<0x55555555>();
}

// The published form: one entry is found by the keys of both directions; if the signature is
// asymmetric, by a second comparison with its halves swapped.
template <class Signature>
void serves_both_directions() {
  auto table = published_dhash<KeyV4, Signature, true>(1000, Secret::from_seed(test::seed()));
  ASSERT_TRUE(table.has_value());
  const auto sessions = site_sessions<KeyV4>(12'000, test::seed());
  for (const KeyV4& key : sessions) ASSERT_EQ(insert(*table, key).outcome, inserted);
  for (const KeyV4& key : sessions) {
    ASSERT_EQ(insert(*table, reversed(key)).outcome, present);
    ASSERT_EQ(find(*table, reversed(key)), find(*table, key));
  }
  EXPECT_EQ(table->size(), sessions.size());
  EXPECT_EQ(table->statistics(sessions).second_comparisons == 0, Signature::kSymmetric);
  check(*table);
  for (const KeyV4& key : sessions) {
    const KeyV4 reply = reversed(key);
    const ConnId id = table->erase(reply, table->hash_of(reply));
    ASSERT_NE(id, ConnId::none);
    table->release(id);
  }
  check(*table);
}

TEST(DHash, AsPublishedAnEntryServesBothDirections) {
  SCOPED_TRACE(test::repeat());
  serves_both_directions<XorSignature>();
  serves_both_directions<CrcPairSignature>();
}

TEST(DHash, SiteSessionsAreDistinct) {
  std::set<std::uint64_t> seen;
  for (const KeyV4& key : site_sessions<KeyV4>(100'000, test::seed()))
    seen.insert((key.word(0) * 0x9e3779b97f4a7c15) ^ key.word(8));
  EXPECT_EQ(seen.size(), 100'000U);
}

// Repeats table IV with fewer sessions: algorithm 3 has the most false positives, as in the paper.
TEST(DHash, SignaturesCompareAsInThePaper) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  SCOPED_TRACE(test::repeat());
  const auto sessions = site_sessions<KeyV4>(200'000, test::seed());
  const auto all = compare_signatures<KeyV4>(sessions, 20'000, Secret::from_seed(test::seed()));
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 4U);
  for (const SignatureStatistics& each : *all) {
    EXPECT_EQ(each.statistics.hits, 400'000U) << each.name;
    RecordProperty(std::string(each.name), std::to_string(each.statistics.false_positives));
  }
  const auto false_positives = [&](std::size_t i) { return (*all)[i].statistics.false_positives; };
  for (const std::size_t other : {0U, 1U, 3U})
    EXPECT_LT(false_positives(other), false_positives(2)) << (*all)[other].name;
  EXPECT_GT((*all)[3].statistics.second_comparisons, 0U);
}

// If a slot becomes free, the list stays as it is: its entries are found, and a newcomer takes the
// slot.
TEST(DHash, EntriesInListsStayThere) {
  auto table = with_buckets<DHash<KeyV4>>(1);
  std::vector<ConnId> ids;
  for (std::uint64_t n = 0; n < 20; ++n) ids.push_back(insert(table, nth_key<KeyV4>(n)).id);
  for (std::uint64_t n = 0; n < 20; ++n) EXPECT_EQ(index(ids[n]) >= 16, n >= 16);
  for (std::uint64_t n = 0; n < 16; ++n)
    table.erase(nth_key<KeyV4>(n), table.hash_of(nth_key<KeyV4>(n)));
  table.reclaim();
  for (std::uint64_t n = 16; n < 20; ++n) EXPECT_EQ(find(table, nth_key<KeyV4>(n)), ids[n]);
  EXPECT_LT(index(insert(table, nth_key<KeyV4>(20)).id), 16U);
  EXPECT_EQ(table.statistics({}).entries_in_lists, 4U);
  check(table);
}

}  // namespace
}  // namespace millrace
