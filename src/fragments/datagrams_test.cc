// Tests the table of datagrams, above all against a model that keeps one list for each datagram and
// knows no bounds.
#include "fragments/datagrams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

template <class K>
class DatagramsTest : public testing::Test {
 protected:
  using A = typename K::Address;
  using Table = Datagrams<K>;

  static Fragment<A> fragment(std::uint32_t source, std::uint32_t id, unsigned begin, unsigned end,
                              bool is_last = false) {
    Fragment<A> f;
    // A source of IPv6 is a /64.
    for (unsigned i = 0; i < 4; ++i)
      f.datagram.source.bytes[i] = static_cast<std::uint8_t>(source >> (8 * i));
    f.datagram.destination.bytes[0] = 9;
    f.datagram.id = id;
    f.datagram.protocol = A::kBytes == 4 ? 17 : 0;
    f.begin = begin;
    f.end = end;
    f.is_last = is_last;
    return f;
  }
  static K key_of(const Fragment<A>& f, std::uint16_t port = 53) {
    K key;
    key.source = f.datagram.source;
    key.destination = f.datagram.destination;
    key.source_port = static_cast<std::uint16_t>(f.datagram.id + 7);
    key.destination_port = port;
    key.protocol = 17;
    return key;
  }
  Verdict take(const Fragment<A>& f, Handle handle = 0, std::uint16_t port = 53) {
    const K key = key_of(f, port);
    const auto answer = table_.take({.fragment = f,
                                     .key = f.is_first() ? &key : nullptr,
                                     .packet = {.handle = handle, .headers = {}}},
                                    now_, released_);
    if (answer.verdict == Verdict::tracked) {
      EXPECT_EQ(answer.key, key);
    }
    return answer.verdict;
  }
  /// Returns the handles of released fragments, all of which must have that verdict.
  std::vector<Handle> released(Verdict verdict) {
    std::vector<Handle> all;
    for (const auto& one : released_) {
      EXPECT_EQ(to_string(one.verdict), to_string(verdict));
      all.push_back(one.packet.handle);
    }
    released_.clear();
    return all;
  }
  void check() {
    const auto ok = table_.check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  Table table_{Secret::from_seed(1)};
  Tick now_{1};
  std::vector<ReleasedFragment> released_;
};

using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(DatagramsTest, Families);

TYPED_TEST(DatagramsTest, LaterOnesFollowTheFirst) {
  const auto f = [](unsigned begin, unsigned end, bool last = false) {
    return TestFixture::fragment(1, 2, begin, end, last);
  };
  EXPECT_EQ(this->take(f(16, 24), 10), Verdict::held);
  EXPECT_EQ(this->take(f(24, 29, true), 11), Verdict::held);
  EXPECT_EQ(this->take(f(16, 24), 12), Verdict::held);  // a duplicate
  EXPECT_EQ(this->take(f(0, 8), 13), Verdict::tracked);
  EXPECT_EQ(this->released(Verdict::tracked), (std::vector<Handle>{10, 11, 12}));
  EXPECT_EQ(this->take(f(8, 16)), Verdict::tracked);
  EXPECT_EQ(this->take(f(8, 16)), Verdict::tracked);
  EXPECT_EQ(this->take(f(24, 29, true)), Verdict::tracked);
  EXPECT_EQ(this->table_.kept(), 0U);
  // The sender uses the identification again.
  EXPECT_EQ(this->take(f(0, 16), 20), Verdict::tracked);
  EXPECT_EQ(this->take(f(16, 40, true), 21), Verdict::tracked);
  EXPECT_EQ(this->take(f(8, 48, true), 22), Verdict::held);
  EXPECT_EQ(this->take(f(0, 8), 23), Verdict::tracked);
  EXPECT_EQ(this->released(Verdict::tracked), (std::vector<Handle>{22}));
  this->check();
}

TYPED_TEST(DatagramsTest, ImpossibleFragments) {
  const auto verdict = [this](unsigned begin, unsigned end, bool last) {
    return this->take(TestFixture::fragment(1, begin + end, begin, end, last));
  };
  constexpr unsigned kMost = TypeParam::Address::kBytes == 4 ? 65515 : 65535;
  EXPECT_EQ(verdict(0, 12, false), Verdict::fragment_invalid);
  EXPECT_EQ(verdict(8, 8, true), Verdict::fragment_invalid);
  EXPECT_EQ(verdict(65512, kMost + 1, true), Verdict::fragment_invalid);
  EXPECT_EQ(verdict(65504, kMost, true), Verdict::held);
  EXPECT_EQ(this->table_.size(), 1U);
}

TYPED_TEST(DatagramsTest, OverlapsEndTheDatagram) {
  const auto f = [](unsigned id, unsigned begin, unsigned end, bool last = false) {
    return TestFixture::fragment(1, id, begin, end, last);
  };
  unsigned id = 0;
  const auto expect_overlap = [&](const std::vector<std::tuple<unsigned, unsigned, bool>>& before,
                                  unsigned begin, unsigned end, bool last) {
    ++id;
    for (const auto& [b, e, l] : before) this->take(f(id, b, e, l));
    EXPECT_EQ(to_string(this->take(f(id, begin, end, last))), "fragment_overlap")
        << begin << " " << end;
    this->released_.clear();
    EXPECT_EQ(this->take(f(id, 800, 808)), Verdict::fragment_overlap);
    this->check();
  };
  expect_overlap({{0, 24, false}}, 16, 32, false);
  expect_overlap({{0, 24, false}}, 8, 16, false);
  expect_overlap({{16, 24, false}}, 8, 32, false);
  expect_overlap({{0, 24, false}}, 0, 16, false);   // another first fragment
  expect_overlap({{24, 30, true}}, 24, 32, false);  // behind the end
  expect_overlap({{24, 32, true}}, 24, 32, false);  // the end, and not the end
  expect_overlap({{24, 32, false}}, 24, 32, true);
  expect_overlap({{24, 32, true}}, 40, 48, true);  // two ends
  expect_overlap({{40, 48, false}}, 24, 32, true);
  expect_overlap({{24, 32, true}, {0, 8, false}}, 32, 40, false);
  // The same first fragment with another port.
  EXPECT_EQ(this->take(f(99, 0, 8)), Verdict::tracked);
  EXPECT_EQ(this->take(f(99, 0, 8), 0, 54), Verdict::fragment_overlap);
  // Kept fragments are dropped, too.
  EXPECT_EQ(this->take(f(100, 16, 24), 5), Verdict::held);
  EXPECT_EQ(this->take(f(100, 16, 32), 6), Verdict::fragment_overlap);
  EXPECT_EQ(this->released(Verdict::fragment_overlap), (std::vector<Handle>{5}));
}

TYPED_TEST(DatagramsTest, AFirstFragmentWithoutAKey) {
  const auto first = TestFixture::fragment(1, 2, 0, 8);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 2, 8, 16), 3), Verdict::held);
  const auto answer =
      this->table_.take({.fragment = first, .packet = {}}, this->now_, this->released_);
  EXPECT_EQ(answer.verdict, Verdict::fragment);
  EXPECT_EQ(this->released(Verdict::fragment), (std::vector<Handle>{3}));
  EXPECT_EQ(this->take(TestFixture::fragment(1, 2, 16, 24)), Verdict::fragment);
}

TYPED_TEST(DatagramsTest, TimePasses) {
  EXPECT_EQ(this->take(TestFixture::fragment(1, 2, 8, 16), 3), Verdict::held);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 0, 8)), Verdict::tracked);
  this->now_.ms += TestFixture::Table::kLastsMs;
  this->table_.expire(this->now_, 9, this->released_);
  EXPECT_EQ(this->table_.size(), 2U);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 8, 16)), Verdict::tracked);
  ++this->now_.ms;
  EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 16, 24), 4), Verdict::held);
  this->table_.expire(this->now_, 9, this->released_);
  EXPECT_EQ(this->released(Verdict::fragment_timeout), (std::vector<Handle>{3}));
  EXPECT_EQ(this->table_.size(), 1U);
  this->check();
}

TYPED_TEST(DatagramsTest, ManyParts) {
  constexpr unsigned kMost = TestFixture::Table::kMostParts;
  std::vector<unsigned> order(kMost + 1);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, std::mt19937(1));
  const auto part = [](unsigned n) {
    return TestFixture::fragment(1, 2, 8 * n, 8 * n + 8, n == kMost);
  };
  for (unsigned n = 0; n < kMost; ++n) {
    const Verdict verdict = this->take(part(order[n]));
    EXPECT_TRUE(verdict == Verdict::held || verdict == Verdict::tracked) << n;
    EXPECT_EQ(this->take(part(order[n / 2])),
              this->table_.kept() == 0 ? Verdict::tracked : Verdict::held);
    this->check();
    if (this->table_.kept() > 100) this->take(part(0));
  }
  EXPECT_EQ(this->take(part(order[kMost])), Verdict::fragment_limit);
}

TYPED_TEST(DatagramsTest, EachSourceHasABudget) {
  for (unsigned id = 0; id < TestFixture::Table::kMostOfSource; ++id)
    EXPECT_EQ(this->take(TestFixture::fragment(1, id, 0, 8)), Verdict::tracked);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 9999, 0, 8)), Verdict::fragment_limit);
  EXPECT_EQ(this->take(TestFixture::fragment(2, 9999, 0, 8)), Verdict::tracked);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 5, 8, 16)), Verdict::tracked);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 5, 16, 20, true)), Verdict::tracked);
  EXPECT_EQ(this->take(TestFixture::fragment(1, 9999, 0, 8)), Verdict::tracked);  // one is complete
  for (unsigned id = 0; id < TestFixture::Table::kMostKeptOfSource; ++id)
    EXPECT_EQ(this->take(TestFixture::fragment(3, id, 8, 16)), Verdict::held);
  EXPECT_EQ(this->take(TestFixture::fragment(3, 9999, 8, 16)), Verdict::fragment_limit);
  EXPECT_EQ(this->take(TestFixture::fragment(4, 9999, 8, 16)), Verdict::held);
  this->check();
  this->now_.ms += TestFixture::Table::kLastsMs + 1;
  EXPECT_EQ(this->take(TestFixture::fragment(1, 10000, 0, 8)), Verdict::tracked);
  this->check();
}

// The parts of complete datagrams take no memory, so that later ones lose nothing.
TYPED_TEST(DatagramsTest, CompleteDatagramsKeepNoParts) {
  constexpr unsigned kFragments = 44;
  for (unsigned id = 0; id < 5000; ++id) {
    const auto part = [id](unsigned n) {
      return TestFixture::fragment(id % 8, id, 8 * n, 8 * n + 8, n + 1 == kFragments);
    };
    for (unsigned n = 0; n < kFragments; ++n) ASSERT_EQ(this->take(part(n)), Verdict::tracked);
    EXPECT_EQ(this->take(part(7)), Verdict::tracked) << "a duplicate";
    EXPECT_EQ(this->take(part(kFragments - 1)), Verdict::tracked) << "a duplicate of the last";
  }
  this->check();
  this->now_.ms += TestFixture::Table::kLastsMs + 1;
  this->table_.expire(this->now_, 10'000, this->released_);
  EXPECT_EQ(this->table_.size(), 0U);
}

TYPED_TEST(DatagramsTest, ASourceDoesNotTakeAllParts) {
  const auto sends_many = [this](unsigned source, unsigned id) {
    for (unsigned n = 0; n < TestFixture::Table::kMostParts - 1; ++n) {
      if (this->take(TestFixture::fragment(source, id, 8 * n, 8 * n + 8)) != Verdict::tracked)
        return false;
    }
    return true;
  };
  unsigned complete = 0;
  for (unsigned id = 0; id < 500; ++id) complete += sends_many(1, id) ? 1 : 0;
  EXPECT_LT(complete, 100U);
  EXPECT_TRUE(sends_many(2, 1000));
  this->check();
}

// Signed differences of ticks are wrong after 24.8 days; ticks begin anew after 49.7 days.
TYPED_TEST(DatagramsTest, DatagramsAreOldAfterAnyTime) {
  for (const unsigned days : {1U, 24U, 26U, 40U, 49U, 50U}) {
    EXPECT_EQ(this->take(TestFixture::fragment(1, 2, 0, 8)), Verdict::tracked);
    EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 0, 8)), Verdict::tracked);
    EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 8, 16, true)), Verdict::tracked);
    this->now_.ms += days * 86'400'000U;
    EXPECT_EQ(this->take(TestFixture::fragment(1, 2, 0, 16)), Verdict::tracked) << days;
    EXPECT_EQ(this->take(TestFixture::fragment(1, 3, 8, 24)), Verdict::held) << days;
    this->now_.ms += days * 86'400'000U;
    this->released_.clear();
    this->table_.expire(this->now_, 10, this->released_);
    EXPECT_EQ(this->table_.size(), 0U) << days;
    this->released_.clear();
  }
}

// 10^6 first fragments of as many sources, whose rest never comes, and in between fragments of one
// honest sender, which lose nothing.
TYPED_TEST(DatagramsTest, AFloodOfFirstFragments) {
  const std::size_t before = this->table_.memory_bytes();
  EXPECT_LT(before, std::size_t{2} << 20);
  unsigned served = 0;
  for (unsigned n = 0; n < 1'000'000; ++n) {
    this->now_.ms = n / 100;
    EXPECT_EQ(this->take(TestFixture::fragment(100 + n, n, 0, 8)), Verdict::tracked);
    if (n % 1000 == 0) {
      EXPECT_EQ(this->take(TestFixture::fragment(1, n, 8, 16), n), Verdict::held);
    } else if (n % 1000 == 500) {
      EXPECT_EQ(this->take(TestFixture::fragment(1, n - 500, 0, 8)), Verdict::tracked);
    }
    if (n % 1000 == 900)
      served +=
          this->take(TestFixture::fragment(1, n - 900, 16, 20, true)) == Verdict::tracked ? 1 : 0;
    this->released_.clear();
    ASSERT_LE(this->table_.size(), TestFixture::Table::kDatagrams);
  }
  EXPECT_EQ(served, 1000U);
  EXPECT_EQ(this->table_.memory_bytes(), before);
  this->check();
}

TYPED_TEST(DatagramsTest, KeptFragmentsAreBoundedInAll) {
  for (unsigned n = 0; n < 3 * TestFixture::Table::kMostKept; ++n) {
    const Verdict verdict = this->take(TestFixture::fragment(n, n, 8, 16), n);
    EXPECT_EQ(verdict, n < TestFixture::Table::kMostKept ? Verdict::held : Verdict::fragment_limit);
  }
  EXPECT_EQ(this->table_.kept(), TestFixture::Table::kMostKept);
  this->table_.give_up(this->released_);
  EXPECT_EQ(this->released(Verdict::fragment_timeout).size(), TestFixture::Table::kMostKept);
  this->check();
}

/// A datagram's fragments, told apart by the bytes that each covers.
struct Model {
  std::map<unsigned, unsigned> owner;  // by units of 8 bytes: the fragment that covers it
  std::vector<std::tuple<unsigned, unsigned, bool>> seen;
  std::vector<Handle> kept;
  bool has_first = false;
  bool is_bad = false;

  /// Returns the bytes of a complete datagram; 0 if it is incomplete.
  unsigned total() const {
    if (!has_first || is_bad) return 0;
    for (const auto& [begin, end, last] : seen) {
      if (last) return owner.size() == (end + 7) / 8 ? end : 0;
    }
    return 0;
  }
  /// True if the fragment contradicts another one.
  bool contradicts(unsigned begin, unsigned end, bool last) const {
    for (unsigned unit = begin / 8; unit < (end + 7) / 8; ++unit) {
      if (owner.contains(unit)) return true;
    }
    for (const auto& [b, e, l] : seen) {
      if ((l && (last || end >= e)) || (last && e > end)) return true;
    }
    return false;
  }
};

TYPED_TEST(DatagramsTest, RandomFragmentsAgreeWithAModel) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  const auto below = [&random](unsigned n) { return static_cast<unsigned>(random() % n); };
  std::map<unsigned, Model> models;
  for (unsigned n = 0; n < 200'000; ++n) {
    const unsigned id = below(40);
    Model& model = models[id];
    const unsigned begin = below(3) == 0 ? 0 : 8 * below(8);
    const bool last = below(3) == 0;
    const unsigned end = begin + (last ? 1 + below(24) : 8 * (1 + below(3)));
    const auto place = std::tuple(begin, end, last);
    bool repeats = std::ranges::find(model.seen, place) != model.seen.end();
    if (const unsigned total = model.total(); total != 0) {
      repeats = begin != 0 && end <= total && last == (end == total);
      if (!repeats) model = {};
    }
    Verdict right = Verdict::tracked;
    std::vector<Handle> goes_on;
    if (model.is_bad || (!repeats && model.contradicts(begin, end, last))) {
      right = Verdict::fragment_overlap;
      goes_on.swap(model.kept);
      model.is_bad = true;
    } else {
      if (!repeats) model.seen.push_back(place);
      for (unsigned unit = begin / 8; unit < (end + 7) / 8; ++unit) model.owner[unit] = n;
      if (begin == 0) {
        model.has_first = true;
        goes_on.swap(model.kept);
      } else if (!model.has_first) {
        model.kept.push_back(n);
        right = Verdict::held;
      }
    }
    ASSERT_EQ(to_string(this->take(TestFixture::fragment(id % 8, id, begin, end, last), n)),
              to_string(right))
        << "step " << n;
    ASSERT_EQ(this->released(right), goes_on) << "step " << n;
    if (n % 256 == 0) {
      this->check();
      const unsigned which = below(40);  // too old
      models.clear();
      this->now_.ms += TestFixture::Table::kLastsMs + 1 + which;
      this->table_.expire(this->now_, 1000, this->released_);
      this->released_.clear();
    }
  }
}

}  // namespace
}  // namespace millrace
