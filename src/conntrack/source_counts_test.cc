// Tests of the counts of sources: by one thread, and by several threads at once.
#include "conntrack/source_counts.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"

namespace millrace {
namespace {

using enum SourceCounts::Taken;
using test::nth_key;

SourceCounts make(const SourceLimit& limit, std::size_t connections) {
  auto made =
      SourceCounts::create(limit, connections, Pages::small, Secret::from_seed(test::seed()));
  EXPECT_TRUE(made.has_value());
  return std::move(*made);
}

template <class K>
K from(std::initializer_list<std::uint8_t> head, std::uint8_t last = 1) {
  K key;
  std::ranges::copy(head, key.source.bytes.begin());
  key.source.bytes.back() = last;
  key.destination.bytes.back() = last;
  key.source_port = last;
  key.protocol = last;
  return key;
}

TEST(SourceCounts, ASourceIsAPrefixAndAZone) {
  const SourceCounts counts = make({.most = 1, .prefix_v4 = 20, .prefix_v6 = 49}, 10);
  const auto of = [&counts](const auto& key) { return counts.source_of(key); };
  EXPECT_EQ(of(from<KeyV4>({10, 0, 0x10}, 1)), of(from<KeyV4>({10, 0, 0x1f}, 255)));
  EXPECT_NE(of(from<KeyV4>({10, 0, 0x10})), of(from<KeyV4>({10, 0, 0x20})));
  EXPECT_EQ(of(from<KeyV6>({0x20, 1, 0, 0, 0, 0, 0x80, 1}, 1)),
            of(from<KeyV6>({0x20, 1, 0, 0, 0, 0, 0xff, 2}, 2)));
  EXPECT_NE(of(from<KeyV6>({0x20, 1, 0, 0, 0, 0, 0x80})),
            of(from<KeyV6>({0x20, 1, 0, 0, 0, 0, 0x7f})));
  KeyV4 elsewhere = from<KeyV4>({10, 0, 0x10});
  elsewhere.zone[2] = 1;
  EXPECT_NE(of(elsewhere), of(from<KeyV4>({10, 0, 0x10})));
  const SourceCounts whole = make({.most = 1, .prefix_v4 = 32, .prefix_v6 = 128}, 10);
  EXPECT_NE(whole.source_of(from<KeyV4>({10}, 1)), whole.source_of(from<KeyV4>({10}, 2)));
  EXPECT_NE(whole.source_of(from<KeyV6>({32}, 1)), whole.source_of(from<KeyV6>({32}, 2)));
}

TEST(SourceCounts, ASourceHasItsLimitAndNoMore) {
  SourceCounts counts = make({.most = 3}, 1000);
  const Hash one = counts.source_of(nth_key<KeyV4>(1));
  const Hash other = counts.source_of(nth_key<KeyV4>(2));
  for (int n = 0; n < 3; ++n) {
    EXPECT_TRUE(counts.has_room(one));
    EXPECT_EQ(counts.take(one), counted);
  }
  EXPECT_FALSE(counts.has_room(one));
  EXPECT_EQ(counts.take(one), full);
  EXPECT_EQ(counts.take(other), counted);
  EXPECT_EQ(counts.count(one), 3U);
  EXPECT_TRUE(counts.give_back(one));
  EXPECT_EQ(counts.take(one), counted);
  EXPECT_EQ(counts.total(), 4U);
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(counts.give_back(one));
  EXPECT_FALSE(counts.give_back(one)) << "no connection of that source is counted";
  EXPECT_TRUE(counts.give_back(other));
  EXPECT_EQ(counts.total(), 0U);
}

// There are as many sources as the table has room for connections, under churn: each source finds a
// slot.
TEST(SourceCounts, ThereIsASlotForEverySource) {
  SCOPED_TRACE(test::repeat());
  constexpr unsigned kSources = kSanitized ? 10'000 : 100'000;
  SourceCounts counts = make({.most = 1}, kSources);
  std::mt19937_64 random(test::seed());
  std::vector<Hash> sources;
  for (unsigned n = 0; n < kSources; ++n) {
    sources.push_back(counts.source_of(test::nth_key<KeyV4>(random())));
    EXPECT_NE(counts.take(sources.back()), uncounted);
  }
  for (unsigned n = 0; n < kSources; ++n) {
    Hash& source = sources[random() % kSources];
    if (!counts.give_back(source)) continue;  // one address was drawn twice
    source = counts.source_of(test::nth_key<KeyV4>(random()));
    EXPECT_NE(counts.take(source), uncounted);
  }
  std::uint64_t held = 0;
  for (const Hash source : sources) held += counts.give_back(source);
  EXPECT_GT(held, kSources * 99 / 100);
  EXPECT_EQ(counts.total(), 0U);
}

// With more connections than the table has room for, some are admitted uncounted, and no count is
// wrong.
TEST(SourceCounts, WithoutASlotNothingIsCounted) {
  SourceCounts counts = make({.most = 2}, 1);
  std::vector<Hash> held;
  unsigned without = 0;
  for (unsigned n = 0; n < 1000; ++n) {
    const Hash source = counts.source_of(nth_key<KeyV6>(n));
    const auto taken = counts.take(source);
    if (taken == counted) held.push_back(source);
    without += taken == uncounted;
  }
  EXPECT_GT(without, 900U);
  EXPECT_EQ(counts.total(), held.size());
  for (const Hash source : held) EXPECT_TRUE(counts.give_back(source));
  EXPECT_EQ(counts.total(), 0U);
}

// Threads take and give back as fast as they can, for few sources, so that slots are emptied and
// claimed all the time. A source never exceeds its limit by more than one for each other thread,
// and no count is lost or left over.
TEST(SourceCounts, ThreadsLoseNothingAndKeepToTheLimit) {
  SCOPED_TRACE(test::repeat());
  constexpr unsigned kThreads = 4;
  constexpr unsigned kSources = 3;
  constexpr std::uint32_t kMost = 2;
  SourceCounts counts = make({.most = kMost}, 4);  // few lines: homes are shared
  std::array<std::atomic<int>, kSources> out{};
  std::atomic<int> most_seen = 0;
  std::atomic<std::uint64_t> lost = 0;
  const auto work = [&](unsigned thread) {
    std::mt19937_64 random(test::seed() + thread);
    std::vector<unsigned> held;
    for (unsigned n = 0; n < 200'000; ++n) {
      const auto source = static_cast<unsigned>(random() % kSources);
      const Hash hash = counts.source_of(nth_key<KeyV4>(source));
      if (counts.take(hash) == counted) {
        const int now = ++out[source];
        for (int most = most_seen; now > most && !most_seen.compare_exchange_weak(most, now);) {
        }
        held.push_back(source);
      }
      if (held.empty() || random() % 3 == 0) continue;
      --out[held.back()];
      lost += !counts.give_back(counts.source_of(nth_key<KeyV4>(held.back())));
      held.pop_back();
    }
    for (const unsigned source : held) {
      --out[source];
      lost += !counts.give_back(counts.source_of(nth_key<KeyV4>(source)));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned n = 0; n < kThreads; ++n) threads.emplace_back(work, n);
  }
  EXPECT_EQ(lost, 0U);
  EXPECT_EQ(counts.total(), 0U);
  EXPECT_GE(most_seen, static_cast<int>(kMost));
  EXPECT_LE(most_seen, static_cast<int>(kMost + kThreads - 1));
}

}  // namespace
}  // namespace millrace
