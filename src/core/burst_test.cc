#include "core/burst.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace millrace {
namespace {

template <class K>
std::vector<unsigned> marks(const Lane<K>& lane, const Burst& burst) {
  std::vector<unsigned> found;
  for (unsigned i = 0; i < lane.size; ++i) {
    EXPECT_EQ(lane.key[i].source_port, burst.length[lane.packet[i]]);
    found.push_back(lane.key[i].source_port);
  }
  return found;
}

// Each packet's place in the burst is also its length, its handle and the source port of its key.
// After some packets are taken out, the others must be there unchanged and in order, in the burst
// and in its lanes.
TEST(TakeOut, LeavesTheOthersAsTheyWere) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    auto burst = std::make_unique<Burst>();
    burst->size = static_cast<unsigned>(random() % (Burst::kMax + 1));
    const std::uint64_t out = round % 3 == 0 ? random() : random() & random() & random();
    std::vector<unsigned> left;
    std::array<std::vector<unsigned>, 4> lanes;
    for (unsigned i = 0; i < burst->size; ++i) {
      burst->length[i] = static_cast<std::uint16_t>(i);
      burst->handle[i] = i;
      const bool stays = (out >> i & 1) == 0;
      if (stays) left.push_back(i);
      const auto file = [&](auto& lane, std::size_t number) {
        lane.packet[lane.size] = static_cast<std::uint8_t>(i);
        lane.key[lane.size++].source_port = static_cast<std::uint16_t>(i);
        if (stays) lanes[number].push_back(i);
      };
      switch (random() % 5) {
        case 0:
          file(burst->v4, 0);
          break;
        case 1:
          file(burst->v6, 1);
          break;
        case 2:
          file(burst->quoted_v4, 2);
          break;
        case 3:
          file(burst->quoted_v6, 3);
          break;
        default:
          break;
      }
    }
    take_out(*burst, out & (burst->size == 64 ? ~0ULL : (1ULL << burst->size) - 1));
    ASSERT_EQ(burst->size, left.size());
    for (unsigned i = 0; i < burst->size; ++i) {
      EXPECT_EQ(burst->length[i], left[i]);
      EXPECT_EQ(burst->handle[i], left[i]);
    }
    EXPECT_EQ(marks(burst->v4, *burst), lanes[0]);
    EXPECT_EQ(marks(burst->v6, *burst), lanes[1]);
    EXPECT_EQ(marks(burst->quoted_v4, *burst), lanes[2]);
    EXPECT_EQ(marks(burst->quoted_v6, *burst), lanes[3]);
  }
}

}  // namespace
}  // namespace millrace
