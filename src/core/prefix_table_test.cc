#include "core/prefix_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

template <class A>
class PrefixTableTest : public testing::Test {
 public:
  using Random = std::mt19937_64;

  /// Returns an address in which few values are likely, so that many prefixes nest and touch.
  static A any_address(Random& random) {
    A address;
    for (std::uint8_t& byte : address.bytes) {
      constexpr std::array<std::uint8_t, 8> kLikely{0, 0, 1, 0x7f, 0x80, 0xfe, 0xff, 0xff};
      byte = random() % 4 == 0 ? static_cast<std::uint8_t>(random()) : kLikely[random() % 8];
    }
    return address;
  }
  static std::vector<Prefix<A>> any_prefixes(Random& random, std::size_t count) {
    std::set<Prefix<A>> all;
    while (all.size() < count) {
      const auto bits = static_cast<unsigned>(random() % (8 * A::kBytes + 1));
      all.insert({prefix_of(any_address(random), bits), bits});
    }
    return {all.begin(), all.end()};
  }
  /// Returns the longest prefix that contains the address and is shorter than `below`.
  static std::uint32_t longest(const std::vector<Prefix<A>>& all, const A& address,
                               unsigned below = 8 * A::kBytes + 1) {
    std::uint32_t best = PrefixTable<A>::kNone;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      const bool is_longer = best == PrefixTable<A>::kNone || all[i].bits > all[best].bits;
      if (all[i].bits < below && all[i].contains(address) && is_longer) best = i;
    }
    return best;
  }
};
using AddressFamilies = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(PrefixTableTest, AddressFamilies);

TYPED_TEST(PrefixTableTest, FindsNothingWithoutPrefixes) {
  const PrefixTable<TypeParam> table;
  TypeParam last;
  last.bytes.fill(0xff);
  EXPECT_EQ(table.find(TypeParam{}), table.kNone);
  EXPECT_EQ(table.find(last), table.kNone);
}

TYPED_TEST(PrefixTableTest, FindsTheLongestPrefix) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (const std::size_t count : {1U, 2U, 5U, 40U, 300U, 3000U}) {
    for (int round = 0; round < (count < 300 ? 40 : 2); ++round) {
      const auto all = this->any_prefixes(random, count);
      const PrefixTable<TypeParam> table(all);
      for (std::uint32_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(table.around(i), this->longest(all, all[i].address, all[i].bits));
        ASSERT_EQ(table.find(all[i].address), this->longest(all, all[i].address));
      }
      for (int n = 0; n < 300; ++n) {
        const TypeParam address = this->any_address(random);
        ASSERT_EQ(table.find(address), this->longest(all, address));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
