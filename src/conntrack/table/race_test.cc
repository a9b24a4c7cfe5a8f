// What `race` promises beyond the contract of every table.
#include "millrace/race.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "conntrack/test_support.h"

namespace millrace {
namespace {

using test::random_key;
using enum Insertion::Outcome;

TEST(Race, StaysWithinItsPromiseUnderChurnAtItsMaximumLoad) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  auto table = Race<KeyV4>::create({50'000, 0, Pages::small, Secret::from_seed(test::seed())});
  ASSERT_TRUE(table.has_value());
  std::vector<KeyV4> live;
  std::size_t refused = 0;
  const auto fresh = [&] {
    for (;;) {
      const KeyV4 key = random_key<KeyV4>(random);
      const auto outcome = table->insert(key, table->hasher()(key), KeepAll{}).outcome;
      if (outcome == inserted) return key;
      refused += outcome == full;
    }
  };
  while (live.size() < table->capacity()) live.push_back(fresh());
  for (std::size_t i = 0; i < 20 * table->capacity(); ++i) {
    KeyV4& leaving = live[random() % live.size()];
    table->erase(leaving, table->hasher()(leaving));
    table->settle();
    leaving = fresh();
  }
  EXPECT_LE(refused, 20 * table->capacity() / 10'000);  // 0.01 %
  const auto ok = table->check_invariants();
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
}

}  // namespace
}  // namespace millrace
