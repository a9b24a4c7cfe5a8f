// Takes tables and gives them back, by several threads at once.
#include "function/nat/table_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::array<std::size_t, 2> kBytes{128, 832};
constexpr std::size_t kEach = 40;  // tables of each size that a thread may have

TEST(TableMemory, LosesNoTableAndUsesNoneTwice) {
  TableMemory memory;
  std::array<TableMemory::Size, 2> sizes{{{kBytes[0]}, {kBytes[1]}}};
  const std::size_t tables = kThreads * kEach;
  ASSERT_TRUE(memory.reserve(tables * (kBytes[0] + kBytes[1]), 2 * tables));
  std::array<std::set<TableMemory::Place>, kThreads> places;
  std::array<std::atomic<unsigned>, 2> most{};  // tables in use at once, or more
  std::array<std::atomic<unsigned>, 2> in_use{};
  std::atomic<unsigned> wrong = 0;
  const auto work = [&](unsigned thread) {
    std::mt19937 random(thread);
    const auto mark = static_cast<std::byte>(thread + 1);
    std::array<std::vector<TableMemory::Place>, 2> have;
    const auto bytes_of = [&](std::size_t kind, TableMemory::Place table) {
      return std::span(memory.at(table), kBytes[kind]);
    };
    const auto give_back = [&](std::size_t kind) {
      const TableMemory::Place table = have[kind].back();
      have[kind].pop_back();
      const auto bytes = bytes_of(kind, table);
      if (std::ranges::count(bytes, mark) != std::ssize(bytes)) ++wrong;
      std::ranges::fill(bytes, std::byte{});
      memory.give_back(sizes[kind], table);
      --in_use[kind];
    };
    for (unsigned step = 0; step < 20'000; ++step) {
      const std::size_t kind = random() % 2;
      if (have[kind].size() == kEach || (!have[kind].empty() && random() % 2 == 0)) {
        std::swap(have[kind][random() % have[kind].size()], have[kind].back());
        give_back(kind);
        continue;
      }
      const unsigned now = ++in_use[kind];
      unsigned before = most[kind];
      while (now > before && !most[kind].compare_exchange_weak(before, now)) {
      }
      const TableMemory::Place table = memory.take(sizes[kind]);
      const auto bytes = bytes_of(kind, table);
      if (table == 0 || std::ranges::count(bytes, std::byte{}) != std::ssize(bytes)) ++wrong;
      std::ranges::fill(bytes, mark);
      have[kind].push_back(table);
      places[thread].insert(table);
    }
    for (const std::size_t kind : {std::size_t{0}, std::size_t{1}})
      while (!have[kind].empty()) give_back(kind);
  };
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < kThreads; ++n) threads.emplace_back(work, n);
  threads.clear();
  EXPECT_EQ(wrong, 0U);
  std::set<TableMemory::Place> all;
  for (const auto& some : places) all.insert(some.begin(), some.end());
  EXPECT_LE(all.size(), most[0] + most[1]) << "a table was lost";
  EXPECT_LE(*all.rbegin(), (most[0] * kBytes[0] + most[1] * kBytes[1]) / 64) << "there are gaps";
}

// The places of tables are 32 bits: more memory makes them coarser.
TEST(TableMemory, ReachesMoreMemoryThanPlaces) {
  constexpr std::size_t kBytesEach = std::size_t{1} << 34;
  constexpr unsigned kTables = 64;  // 1 TiB of address space
  TableMemory memory;
  TableMemory::Size size{kBytesEach};
  ASSERT_TRUE(memory.reserve(kBytesEach * kTables, kTables));
  const std::byte* before = nullptr;
  for (unsigned n = 0; n < kTables; ++n) {
    const std::byte* const at = memory.at(memory.take(size));
    if (before != nullptr) {
      ASSERT_EQ(at - before, kBytesEach);
    }
    before = at;
  }
}

}  // namespace
}  // namespace millrace
