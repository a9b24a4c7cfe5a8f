#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

#include "core/burst.h"
#include "core/sharded_count.h"
#include "millrace/detail/aes.h"
#include "millrace/hash.h"
#include "millrace/memory.h"
#include "millrace/record.h"

namespace millrace {
namespace {

// FIPS 197, Appendix B: the state after the first round's AddRoundKey.
TEST(Aes, RoundMatchesFips197) {
  const std::array<std::uint8_t, 16> start{0x19, 0x3d, 0xe3, 0xbe, 0xa0, 0xf4, 0xe2, 0x2b,
                                           0x9a, 0xc6, 0x8d, 0x2a, 0xe9, 0xf8, 0x48, 0x08};
  const std::array<std::uint8_t, 16> key{0xa0, 0xfa, 0xfe, 0x17, 0x88, 0x54, 0x2c, 0xb1,
                                         0x23, 0xa3, 0x39, 0x39, 0x2a, 0x6c, 0x76, 0x05};
  const std::array<std::uint8_t, 16> next{0xa4, 0x9c, 0x7f, 0xf2, 0x68, 0x9f, 0x35, 0x2b,
                                          0x6b, 0x5b, 0xea, 0x43, 0x02, 0x6a, 0x50, 0x49};
  const auto block =
      detail::aes_round(detail::aes_load(start.data()), detail::aes_load(key.data()));
  std::uint64_t low = 0;
  std::memcpy(&low, next.data(), 8);
  EXPECT_EQ(detail::aes_low(block), low);
}

// Hashes are compared with fixed values, so that hardware and portable rounds must agree on every
// machine.
TEST(Hasher, SameOnEveryMachine) {
  const Hasher hash(Secret::from_seed(1));
  KeyV4 v4;
  v4.source.bytes = {192, 0, 2, 1};
  v4.destination_port = 443;
  v4.protocol = 6;
  KeyV6 v6;
  v6.destination.bytes[15] = 1;
  v6.source_port = 53;
  EXPECT_EQ(hash(v4), 0x28e2204375bf6d62U);
  EXPECT_EQ(hash(v6), 0xd4f1ef7497dd3b4cU);
}

TEST(Hasher, EveryBitOfTheKeyMatters) {
  const Hasher hash(Secret::from_seed(2));
  std::set<Hash> seen{hash(KeyV6{})};
  for (std::size_t bit = 0; bit < sizeof(KeyV6) * 8; ++bit) {
    std::array<std::uint8_t, sizeof(KeyV6)> bytes{};
    bytes[bit / 8] = static_cast<std::uint8_t>(1U << bit % 8);
    KeyV6 key;
    std::memcpy(static_cast<void*>(&key), bytes.data(), bytes.size());
    EXPECT_TRUE(seen.insert(hash(key)).second) << "bit " << bit;
  }
}

TEST(Secret, RandomOnesDiffer) { EXPECT_NE(Secret::random().bytes, Secret::random().bytes); }

TEST(Tick, WrapsAround) {
  const Tick before{0xfffffff0};
  EXPECT_EQ((before + 32) - before, 32);
  EXPECT_EQ(before - (before + 32), -32);
}

TEST(Memory, IsZeroedAndReportsItsPages) {
  for (const Pages best : {Pages::huge, Pages::transparent, Pages::small}) {
    auto memory = Memory::map(std::size_t{5} << 20, best);
    ASSERT_TRUE(memory.has_value());
    EXPECT_GE(memory->bytes(), std::size_t{5} << 20);
    EXPECT_GE(memory->pages(), best);
    for (std::size_t i = 0; i < memory->bytes(); i += 511)
      ASSERT_EQ(memory->data()[i], std::byte{});
  }
}

TEST(Memory, RefusesTheImpossible) {
  EXPECT_FALSE(Memory::map(SIZE_MAX).has_value());
  EXPECT_FALSE(Memory::map(std::size_t{1} << 52).has_value());
}

TEST(Records, StrideIsThePowerOfTwoThatFits) {
  EXPECT_EQ(Records<KeyV4>::create(10, 8, Pages::small)->stride(), 32U);
  EXPECT_EQ(Records<KeyV4>::create(10, 9, Pages::small)->stride(), 64U);
  EXPECT_EQ(Records<KeyV6>::create(10, 0, Pages::small)->stride(), 64U);
  EXPECT_EQ(Records<KeyV6>::create(10, 80, Pages::small)->stride(), 128U);
  EXPECT_FALSE((Records<KeyV4>::create(10, 233, Pages::small).has_value()));
}

TEST(ShardedCount, HasRoomForAllAndForAShare) {
  ShardedCount count(3);
  count.add<false>(2, 5);
  EXPECT_EQ(count.total(), 5);
  EXPECT_TRUE(count.has_room(6));
  EXPECT_FALSE(count.has_room(5));
  EXPECT_TRUE(count.has_room_or_share(0, 3)) << "worker 0 has counted 0 of 3 / 3 workers = 1";
  EXPECT_FALSE(count.has_room_or_share(2, 3));
}

}  // namespace
}  // namespace millrace
