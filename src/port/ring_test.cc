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

// What several threads push, each in its order, one pops: all of it, each thread's in its order.
TEST(PointerRing, TakesFromSeveral) {
  constexpr std::uintptr_t kEach = 20'000;
  constexpr std::uintptr_t kThreads = 3;
  auto ring = PointerRing::create(32, PointerRing::Writers::several);
  ASSERT_TRUE(ring.has_value());
  std::vector<std::jthread> writers;
  for (std::uintptr_t n = 0; n < kThreads; ++n) {
    writers.emplace_back([&ring, n] {
      for (std::uintptr_t i = 0; i < kEach;) {
        void* const pointer = reinterpret_cast<void*>(n * kEach + i);
        if (ring->push({&pointer, 1}) == 1) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<std::uintptr_t> next(kThreads);
  for (std::uintptr_t left = kThreads * kEach; left > 0;) {
    std::array<void*, 8> got{};
    const std::size_t count = ring->pop(got);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = reinterpret_cast<std::uintptr_t>(got[i]);
      ASSERT_EQ(value % kEach, next[value / kEach]++);
    }
    left -= count;
    if (count == 0) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace millrace
