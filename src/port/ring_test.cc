#include "port/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(PointerRing, HoldsWhatItPromisesInOrder) {
  for (const unsigned capacity : {1U, 3U, 4U, 16U}) {
    auto ring = PointerRing::create(capacity);
    ASSERT_TRUE(ring.has_value());
    std::vector<int> things(capacity);
    std::vector<void*> pointers;
    for (int& thing : things) pointers.push_back(&thing);
    std::vector<void*> got(capacity);
    EXPECT_EQ(ring->pop(got), 0U);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(ring->push(pointers), capacity);
      EXPECT_EQ(ring->pop(got), capacity);
      EXPECT_EQ(got, pointers);
    }
  }
}

TEST(PointerRing, HandsOnWhatWasWritten) {
  constexpr unsigned kThings = 8;
  constexpr std::uint32_t kRounds = 20'000;
  auto ring = PointerRing::create(kThings);
  auto free = PointerRing::create(kThings);
  ASSERT_TRUE(ring.has_value() && free.has_value());
  std::array<std::uint32_t, kThings> things{};
  for (std::uint32_t& thing : things) {
    void* const pointer = &thing;
    ASSERT_EQ(free->push({&pointer, 1}), 1U);
  }
  const auto pass = [](PointerRing& from, PointerRing& to, const auto& work) {
    for (std::uint32_t i = 0; i < kRounds;) {
      void* thing = nullptr;
      if (from.pop({&thing, 1}) == 0) {
        std::this_thread::yield();
        continue;
      }
      work(*static_cast<std::uint32_t*>(thing), i++);
      to.push({&thing, 1});
    }
  };
  std::jthread writer(
      [&] { pass(*free, *ring, [](std::uint32_t& thing, std::uint32_t i) { thing = i; }); });
  pass(*ring, *free, [](std::uint32_t thing, std::uint32_t i) { EXPECT_EQ(thing, i); });
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
