#include "core/burst.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
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

// Each packet's number is its length, its handle, its customer and next hop, the source port of its
// key, and the port with which it leaves. The even ones have changes, every third comes again.
TEST(TakeOutServed, LeavesTheOthersAsTheyWereAndBringsTheRestAgain) {
  constexpr std::uint64_t kEven = 0x5555'5555'5555'5555;
  std::mt19937_64 random(4);
  for (int round = 0; round < 500; ++round) {
    auto burst = std::make_unique<Burst>();
    burst->now = Tick{7};
    burst->size = static_cast<unsigned>(random() % (Burst::kMax + 1));
    const std::uint64_t again = random() & random() & all_of(*burst);
    for (unsigned i = 0; i < burst->size; ++i) {
      const auto number = static_cast<std::uint16_t>(i);
      burst->length[i] = number;
      burst->handle[i] = i;
      burst->verdict[i] = i % 5 == 4 ? Verdict::related : Verdict::tracked;
      burst->headers[i].l4 = number;
      burst->wire_length[i] = number;
      burst->shard[i] = number;
      burst->link[i] = static_cast<std::uint8_t>(i);
      burst->signal[i] = i % 2 == 0 ? Signal::syn : Signal::ack;
      if (i % 2 == 0) burst->send_by(i, AddressV4{{10, 0, 0, static_cast<std::uint8_t>(i)}});
      if (i % 2 == 0) burst->send_to(i, i + 1);
      Lane<KeyV4>& lane = i % 5 == 4 ? burst->quoted_v4 : burst->v4;
      lane.packet[lane.size] = static_cast<std::uint8_t>(i);
      lane.key[lane.size] = {.source_port = number};
      lane.changed[lane.size] = 0;
      lane.replies |= std::uint64_t{i % 2} << lane.size;
      lane.set_source(lane.size++, {}, static_cast<std::uint16_t>(1000 + i));
    }
    auto to = std::make_unique<Burst>();
    bring_again(*burst, again, *to);
    take_out_served(*burst, again);
    unsigned stay = 0;
    unsigned come = 0;
    std::array<unsigned, 4> in_lane{};
    for (unsigned i = 0; i < burst->size + to->size; ++i) {
      const bool comes = (again >> i & 1) != 0;
      const bool is_error = i % 5 == 4;
      const Burst& is = comes ? *to : *burst;
      const unsigned at = comes ? come++ : stay++;
      EXPECT_EQ(is.length[at], i);
      EXPECT_EQ(is.handle[at], i);
      EXPECT_EQ(is.headers[at].l4, i);
      EXPECT_EQ(is.wire_length[at], i);
      EXPECT_EQ(is.shard[at], i);
      EXPECT_EQ(is.link[at], i);
      EXPECT_EQ(is.signal[at], i % 2 == 0 ? Signal::syn : Signal::ack);
      const Verdict as_it_came = is_error ? Verdict::icmp_error : Verdict::tracked;
      const Verdict served = is_error ? Verdict::related : Verdict::tracked;
      EXPECT_EQ(is.verdict[at], comes ? as_it_came : served);
      const bool has_hop = !comes && (kEven >> i & 1) != 0;
      EXPECT_EQ((is.has_next_hop >> at & 1) != 0, has_hop);
      if (has_hop) {
        EXPECT_EQ(is.next_hop_v4[at].bytes[3], i);
      }
      EXPECT_EQ(is.customer_of(at), has_hop ? i + 1 : 0);
      const Lane<KeyV4>& lane = is_error ? is.quoted_v4 : is.v4;
      const unsigned place = in_lane[2 * comes + is_error]++;
      EXPECT_EQ(lane.packet[place], at);
      EXPECT_EQ(lane.key[place].source_port, comes ? 1000 + i : i);
      if (!comes) {
        EXPECT_EQ(lane.leaving(place).source_port, 1000 + i);
        EXPECT_EQ(lane.replies >> place & 1, i % 2);
      }
    }
    EXPECT_EQ(come, to->size);
    EXPECT_EQ(stay, burst->size);
    EXPECT_EQ(to->came_again, all_of(*to));
    EXPECT_EQ(to->now, burst->now);
    EXPECT_EQ(burst->v4.size + burst->quoted_v4.size, stay);
    EXPECT_EQ(to->v4.size + to->quoted_v4.size, come);
  }
}

}  // namespace
}  // namespace millrace
