#include "host/neighbours.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace millrace {
namespace {

/// Notes the addresses that the cache asks for, and counts the neighbours that it resolves.
class Silence final : public Neighbours<AddressV4>::Listener {
 public:
  void ask(const Neighbourhood& /*on*/, const AddressV4& target, const Mac* /*one*/) override {
    asked.insert(target);
  }
  void resolved(std::uint32_t /*id*/, const Mac& /*mac*/) override { ++answers; }
  void failed(std::uint32_t /*id*/) override {}

  std::set<AddressV4> asked;
  unsigned answers = 0;
};

AddressV4 address(unsigned network, unsigned i) {
  return {{10, static_cast<std::uint8_t>(network), static_cast<std::uint8_t>(i >> 8),
           static_cast<std::uint8_t>(i)}};
}

constexpr unsigned kMany = 2 * Neighbours<AddressV4>::kMaxUnanswered;
constexpr std::uint32_t kFailedMs =
    Neighbours<AddressV4>::kAsks * Neighbours<AddressV4>::kRetransmitMs;

TEST(NeighboursTest, ThoseThatAreKeptLeaveRoomForOthers) {
  Neighbours<AddressV4> neighbours(1);
  Silence silence;
  Tick now{};
  for (unsigned i = 0; i < kMany; ++i) neighbours.keep({0}, address(0, i), now, silence);
  EXPECT_EQ(silence.asked.size(), kMany);
  EXPECT_TRUE(neighbours.use({0}, address(1, 0), now, silence).may_wait());
  for (std::uint32_t ms = 0; ms < 2 * kFailedMs; ms += neighbours.kTickMs) {
    now = now + neighbours.kTickMs;
    neighbours.tick(now, silence);
  }
  EXPECT_TRUE(neighbours.use({0}, address(1, 1), now, silence).may_wait());
  neighbours.advertised({0}, address(0, 7), {.mac = Mac{}}, now, silence);
  EXPECT_EQ(silence.answers, 1U);
  // Neighbours that are no longer kept count as unanswered until they have failed and are removed.
  neighbours.keep_none();
  EXPECT_FALSE(neighbours.use({0}, address(1, 2), now, silence).may_wait())
      << "too many neighbours are silent";
  for (std::uint32_t ms = 0; ms < 2 * kFailedMs; ms += neighbours.kTickMs) {
    now = now + neighbours.kTickMs;
    neighbours.tick(now, silence);
  }
  EXPECT_TRUE(neighbours.use({0}, address(1, 3), now, silence).may_wait());
}

TEST(NeighboursTest, WhoScansKeepsNobodyFromIntroducingHimself) {
  Neighbours<AddressV4> neighbours(1);
  Silence silence;
  const Tick now{};
  for (unsigned i = 0; i < kMany; ++i) neighbours.use({0}, address(0, i), now, silence);
  EXPECT_EQ(silence.asked.size(), neighbours.kMaxUnanswered);
  const Mac mac{{2, 0, 0, 0, 0, 9}};
  neighbours.asked_by({0}, address(1, 0), mac, now, silence);
  const auto way = neighbours.use({0}, address(1, 0), now, silence);
  ASSERT_NE(way.mac, nullptr);
  EXPECT_EQ(*way.mac, mac);
}

TEST(NeighboursTest, ACustomerHasAPartForHimself) {
  Neighbours<AddressV4> neighbours(1);
  Silence silence;
  Tick now{};
  const Mac mac{{2, 0, 0, 0, 0, 9}};
  const auto knows = [&](const Neighbourhood& on, const AddressV4& one) {
    const auto way = neighbours.use(on, one, now, silence);
    return way.mac != nullptr;
  };
  neighbours.asked_by({0}, address(1, 0), mac, now, silence);
  neighbours.asked_by({0, 2}, address(1, 0), mac, now, silence);
  EXPECT_FALSE(knows({0, 3}, address(1, 0))) << "each has an address for himself";
  EXPECT_FALSE(knows({1, 2}, address(1, 0)));
  const std::size_t before = neighbours.size();
  // One introduces more stations than he may have; then he is asked for others that are silent.
  for (unsigned i = 0; i < 100'000; ++i)
    neighbours.asked_by({0, 1}, address(i % 4, i), mac, now, silence);
  EXPECT_EQ(neighbours.size(), before + neighbours.kMaxOfCustomer);
  unsigned waiting = 0;
  for (unsigned i = 0; i < kMany; ++i)
    waiting += neighbours.use({0, 1}, address(9, i), now, silence).may_wait() ? 1 : 0;
  EXPECT_EQ(waiting, neighbours.kMaxUnansweredOfCustomer);
  EXPECT_EQ(neighbours.size(), before + neighbours.kMaxOfCustomer);
  EXPECT_TRUE(knows({0}, address(1, 0)));
  EXPECT_TRUE(knows({0, 2}, address(1, 0)));
  EXPECT_TRUE(neighbours.use({0, 2}, address(9, 0), now, silence).may_wait());
  EXPECT_TRUE(neighbours.use({0}, address(9, 0), now, silence).may_wait());
  // The silent ones are removed, and make room.
  for (std::uint32_t ms = 0; ms < 2 * kFailedMs; ms += neighbours.kTickMs) {
    now = now + neighbours.kTickMs;
    neighbours.tick(now, silence);
  }
  EXPECT_TRUE(neighbours.use({0, 1}, address(9, 0), now, silence).may_wait());
  EXPECT_LE(neighbours.size(), before + neighbours.kMaxOfCustomer);
}

}  // namespace
}  // namespace millrace
