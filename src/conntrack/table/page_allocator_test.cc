// Tests of arenas: the limits that they keep for the maps of libraries, and their count of memory.
#include "conntrack/table/page_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <list>
#include <vector>

namespace millrace {
namespace {

TEST(PageArena, CountsWhatIsMapped) {
  PageArena arena(Pages::small, 0);
  EXPECT_EQ(arena.bytes(), 0U);
  {
    const std::vector<std::uint64_t, PageAllocator<std::uint64_t>> big(
        1000, PageAllocator<std::uint64_t>(&arena));
    EXPECT_EQ(arena.bytes(), 8192U);
    EXPECT_EQ(arena.latest().count, 1000U);
    EXPECT_EQ(arena.latest().element_bytes, 8U);
  }
  EXPECT_EQ(arena.bytes(), 0U);
}

TEST(PageArena, SmallObjectsShareAPage) {
  PageArena arena(Pages::small, 0);
  for (int i = 0; i < 16; ++i) {
    std::byte* at = arena.array(5, 8);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 64, 0U);
    *at = std::byte{1};
  }
  EXPECT_EQ(arena.bytes(), 4096U);
}

TEST(PageArena, NodesAreReusedAndNeverMoreThanPromised) {
  PageArena arena(Pages::small, 100);
  std::list<std::uint64_t, PageAllocator<std::uint64_t>> list{PageAllocator<std::uint64_t>(&arena)};
  for (int round = 0; round < 3; ++round) {
    while (list.size() < 100) list.push_back(list.size());
    EXPECT_THROW(list.push_back(0), std::bad_alloc);
    EXPECT_EQ(arena.bytes(), 4096U);
    std::uint64_t expected = 0;
    for (const std::uint64_t value : list) EXPECT_EQ(value, expected++);
    list.clear();
  }
}

TEST(PageArena, SealedItGivesNoLargerArray) {
  PageArena arena(Pages::small, 1);
  arena.release_node(arena.node(24));
  arena.seal(1 << 20);
  EXPECT_THROW(arena.array((1 << 20) / 8 + 1, 8), std::bad_alloc);
  arena.release_array(arena.array((1 << 20) / 8, 8));
  arena.seal();
  EXPECT_THROW(arena.array(1, 1), std::bad_alloc);
  EXPECT_NE(arena.node(24), nullptr);
  EXPECT_THROW(arena.node(24), std::bad_alloc);
}

TEST(PageArena, MoreThanThereIsIsBadAlloc) {
  PageArena arena(Pages::small, 0);
  EXPECT_THROW(arena.array(SIZE_MAX / 4, 2), std::bad_alloc);
  EXPECT_THROW(arena.array(SIZE_MAX / 4, 16), std::bad_alloc);
}

}  // namespace
}  // namespace millrace
