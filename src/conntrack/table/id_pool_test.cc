// Attacks the invariants of the id pool, and tests its walk, which several tables use.
#include "conntrack/table/id_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "conntrack/test_support.h"

namespace millrace {
namespace {

IdPool make(std::size_t count) {
  auto pool = IdPool::create(count, Pages::small);
  EXPECT_TRUE(pool.has_value());
  return std::move(*pool);
}

void check(const IdPool& pool) {
  const auto ok = pool.check_invariants();
  ASSERT_TRUE(ok.has_value()) << ok.error().message;
}

TEST(IdPool, GivesTheIdThatBecameFreeLastFirst) {
  IdPool pool = make(3);
  EXPECT_EQ(pool.take(), ConnId{0});
  EXPECT_EQ(pool.take(), ConnId{1});
  pool.give_back(ConnId{0});
  pool.release(ConnId{0});
  EXPECT_EQ(pool.take(), ConnId{0});
  pool.put_back(ConnId{0});
  EXPECT_EQ(pool.take(), ConnId{0});
  EXPECT_EQ(pool.take(), ConnId{2});
  EXPECT_EQ(pool.take(), ConnId::none);
}

TEST(IdPool, ADrainingIdIsNotGivenOutUntilReleased) {
  IdPool pool = make(1);
  pool.give_back(pool.take());
  EXPECT_EQ(pool.draining(), 1U);
  EXPECT_EQ(pool.take(), ConnId::none);
  pool.release(ConnId{0});
  EXPECT_EQ(pool.take(), ConnId{0});
}

// Invariants 1 and 2.
TEST(IdPool, KeepsEveryIdInOneStateUnderChurn) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (const std::size_t count : {1U, 2U, 63U, 64U, 65U, 1000U}) {
    IdPool pool = make(count);
    std::vector<ConnId> live;
    std::vector<ConnId> draining;  // oldest first
    std::set<ConnId> in_use;       // live or draining
    for (std::size_t step = 0; step < 20 * count + 200; ++step) {
      const auto action = random() % 16;
      if (action < 8) {
        const ConnId id = pool.take();
        ASSERT_EQ(id == ConnId::none, in_use.size() == count);
        if (id == ConnId::none) continue;
        ASSERT_TRUE(in_use.insert(id).second);
        live.push_back(id);
      } else if (action < 15 && !live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        pool.give_back(live.back());
        draining.push_back(live.back());
        live.pop_back();
      } else if (action == 15) {
        const std::size_t oldest = random() % (draining.size() + 1);
        for (std::size_t i = 0; i < oldest; ++i) {
          pool.release(draining[i]);
          in_use.erase(draining[i]);
        }
        draining.erase(draining.begin(), draining.begin() + static_cast<std::ptrdiff_t>(oldest));
      }
      ASSERT_EQ(pool.live(), live.size());
      ASSERT_EQ(pool.draining(), in_use.size() - live.size());
      if (step % 16 == 0) check(pool);
    }
  }
}

TEST(IdPool, AWalkVisitsInOrderWhateverItsSteps) {
  IdPool pool = make(200);
  for (int i = 0; i < 200; ++i) pool.take();
  std::vector<ConnId> expected;
  for (std::uint32_t id = 0; id < 200; ++id) {
    if (id % 7 == 0 || (id >= 64 && id < 128)) {
      pool.give_back(ConnId{id});
    } else {
      expected.push_back(ConnId{id});
    }
  }
  for (const std::size_t about : {1U, 2U, 5U, 64U, 1000U}) {
    std::vector<ConnId> seen;
    for (auto at = Cursor::begin; at != Cursor::end;) {
      const std::size_t before = seen.size();
      at = pool.walk(at, about, [&](ConnId id) { seen.push_back(id); });
      ASSERT_LE(seen.size() - before, about);
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST(IdPool, AWalkStepOverNothingIsBounded) {
  const IdPool pool = make(6400);
  std::size_t steps = 0;
  for (auto at = Cursor::begin; at != Cursor::end; ++steps)
    at = pool.walk(at, 10, [](ConnId) { FAIL(); });
  EXPECT_EQ(steps, 10U);
}

}  // namespace
}  // namespace millrace
