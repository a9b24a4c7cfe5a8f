#include "port/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(BurstRing, HoldsWhatItPromisesInOrder) {
  for (const unsigned capacity : {1U, 3U, 4U, 16U}) {
    auto ring = BurstRing::create(capacity);
    ASSERT_TRUE(ring.has_value());
    std::vector<Burst> bursts(capacity);
    EXPECT_EQ(ring->pop(), nullptr);
    for (int again = 0; again < 3; ++again) {
      for (Burst& burst : bursts) EXPECT_TRUE(ring->push(&burst));
      for (Burst& burst : bursts) EXPECT_EQ(ring->pop(), &burst);
    }
    Burst more;
    unsigned room = 0;
    while (room < 100 && ring->push(&more)) ++room;
    EXPECT_GE(room, capacity);
    EXPECT_LT(room, 100U);
  }
}

TEST(BurstRing, HandsOnWhatWasWritten) {
  constexpr unsigned kBursts = 8;
  constexpr std::uint32_t kRounds = 20'000;
  auto ring = BurstRing::create(kBursts);
  auto free = BurstRing::create(kBursts);
  ASSERT_TRUE(ring.has_value() && free.has_value());
  std::vector<Burst> bursts(kBursts);
  for (Burst& burst : bursts) free->push(&burst);
  std::jthread writer([&] {
    for (std::uint32_t i = 0; i < kRounds;) {
      Burst* burst = free->pop();
      if (burst == nullptr) {
        std::this_thread::yield();
        continue;
      }
      burst->now.ms = i;
      burst->size = i % 64;
      ring->push(burst);
      ++i;
    }
  });
  for (std::uint32_t i = 0; i < kRounds;) {
    Burst* burst = ring->pop();
    if (burst == nullptr) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(burst->now.ms, i);
    EXPECT_EQ(burst->size, i % 64);
    free->push(burst);
    ++i;
  }
}

TEST(PointerRing, TakesAndGivesSeveralAtOnce) {
  auto ring = PointerRing::create(6);
  ASSERT_TRUE(ring.has_value());
  std::array<int, 100> things{};
  std::array<void*, 100> pointers{};
  for (std::size_t i = 0; i < things.size(); ++i) pointers[i] = &things[i];
  const std::size_t room = ring->push(pointers);
  EXPECT_GE(room, 6U);
  EXPECT_LT(room, 100U);
  std::array<void*, 4> got{};
  EXPECT_EQ(ring->pop(got), 4U);
  EXPECT_EQ(got[3], &things[3]);
  EXPECT_EQ(ring->push({&pointers[50], 1}), 1U);
  std::array<void*, 100> rest{};
  EXPECT_EQ(ring->pop(rest), room - 3);
  EXPECT_EQ(rest[0], &things[4]);
  EXPECT_EQ(rest[room - 4], &things[50]);
  EXPECT_EQ(ring->pop(rest), 0U);
}

}  // namespace
}  // namespace millrace
