// Compares port blocks with a model in random steps, and uses them by several threads at once.
#include "function/nat/port_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "core/address_numbers.h"
#include "core/protocol.h"

namespace millrace {
namespace {

using Dependences = std::tuple<Dependence, Dependence>;

NatPool small_pool(Dependence mapping, Dependence filtering) {
  return {.name = "p",
          .prefixes = {{address_with(0xc6336400), 31}, {address_with(0xc6336410), 32}},
          .first_port = 1025,  // blocks begin at odd ports
          .last_port = 1025 + 4 * 64,
          .mapping = mapping,
          .filtering = filtering,
          .block_size = 64,
          .blocks_per_customer = 2,
          .sessions_per_customer = 200};
}

class PortBlocksTest : public testing::TestWithParam<Dependences> {};

struct Session {
  PortBlocks::Wanted wanted;
  PortBlocks::Taken taken;
};

bool is_same_end(const PortBlocks::Wanted& a, const PortBlocks::Wanted& b) {
  return a.customer == b.customer && a.inside == b.inside;
}

/// The mapping's part of the remote end, as RFC 4787 says.
EndpointV4 mapped_remote(Dependence mapping, EndpointV4 remote) {
  if (mapping == Dependence::endpoint_independent) return {};
  if (mapping == Dependence::address_dependent) remote.port = 0;
  return remote;
}

TEST_P(PortBlocksTest, DoWhatAModelSays) {
  const auto [mapping, filtering] = GetParam();
  const NatPool pool = small_pool(mapping, filtering);
  const auto seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t n) {
    return static_cast<std::uint32_t>(random() % n);
  };
  const auto blocks = *PortBlocks::create(std::array{pool});
  std::vector<Session> live;
  using Public = std::tuple<std::uint32_t, std::uint16_t, std::uint8_t>;
  struct Used {
    std::uint32_t customer = 0;
    std::uint32_t last = 0;  // ms
  };
  std::map<Public, Used> used;  // who has used a port last, and when
  std::uint32_t now = 0;
  unsigned refused = 0;
  unsigned foreseen = 0;  // sessions with a new mapping whose public end was foreseen
  unsigned right = 0;
  for (unsigned step = 0; step < 30'000; ++step) {
    now += below(step % 10'000 < 5'000 ? 20 : 4000);
    if (below(100) < (step / 5000 % 2 == 0 ? 60 : 35)) {
      // Half of the customers are behind tunnels, with three of the others' addresses each.
      const std::uint32_t who = below(16);
      const std::uint32_t address = 0x0a000001 + (who < 8 ? who : 1 + below(3));
      PortBlocks::Wanted wanted{
          .inside = {address_with(address), static_cast<std::uint16_t>(below(300))},
          .remote = {address_with(0xc0000201 + below(4)),
                     static_cast<std::uint16_t>(80 + below(4))},
          .customer = who < 8 ? address : who,
          .protocol = below(2) == 0 ? kProtocolTcp : kProtocolUdp,
          .pool = 0,
          .now = {now}};
      const auto same = [&](const Session& one) {
        return is_same_end(one.wanted, wanted) && one.wanted.remote == wanted.remote &&
               one.wanted.protocol == wanted.protocol;
      };
      if (std::ranges::any_of(live, same)) continue;
      const auto of_customer = std::ranges::count_if(
          live, [&](const Session& one) { return one.wanted.customer == wanted.customer; });
      std::array<EndpointV4, 1> likely;
      blocks->prefetch(std::array{wanted}, likely);
      if (likely[0].port != 0) {
        ASSERT_EQ(blocks->customer_at(likely[0]), wanted.customer);
      }
      bool is_new = true;
      const auto taken = blocks->take(wanted);
      if (!taken) {
        ++refused;
        const bool is_limit = taken.error() == Verdict::customer_limit;
        ASSERT_EQ(is_limit, of_customer >= pool.sessions_per_customer);
        continue;
      }
      for (const Session& one : live) {
        if (one.wanted.protocol != wanted.protocol) continue;
        const bool is_mapping =
            is_same_end(one.wanted, wanted) &&
            mapped_remote(mapping, one.wanted.remote) == mapped_remote(mapping, wanted.remote);
        const bool is_same_port = one.taken.outside == taken->outside;
        if (is_mapping) {
          is_new = false;
          ASSERT_TRUE(is_same_port);
        }
        if (!is_mapping && !pool.shares_ports()) {
          ASSERT_FALSE(is_same_port);
        }
        if (is_same_port) {
          ASSERT_EQ(one.wanted.customer, wanted.customer);
        }
      }
      if (is_new && likely[0].port != 0) {
        ++foreseen;
        right += likely[0] == taken->outside;
      }
      for (const Session& one : live) {
        if (one.wanted.customer == wanted.customer) {
          ASSERT_EQ(one.taken.outside.address, taken->outside.address) << "paired pooling";
        }
      }
      const CustomerNumber customer = wanted.customer;
      Used& before =
          used[{number_of(taken->outside.address), taken->outside.port, wanted.protocol}];
      if (before.customer != 0 && before.customer != customer) {
        ASSERT_GE(now - before.last, PortBlocks::kRestMs) << "it did not rest";
      }
      before = {customer, now};
      ASSERT_EQ(blocks->customer_at(taken->outside), wanted.customer);
      live.push_back({wanted, *taken});
    } else if (!live.empty()) {
      const std::size_t at = below(static_cast<std::uint32_t>(live.size()));
      const Session ended = live[at];
      live[at] = live.back();
      live.pop_back();
      blocks->release(ended.taken.ref, ended.wanted.protocol, ended.wanted.remote.address, {now});
      used[{number_of(ended.taken.outside.address), ended.taken.outside.port,
            ended.wanted.protocol}]
          .last = now;
    }
    if (live.empty() || step % 4 != 0) continue;
    // A packet from outside to some port in use.
    const Session& to = live[below(static_cast<std::uint32_t>(live.size()))];
    const EndpointV4 remote{address_with(0xc0000201 + below(5)),
                            static_cast<std::uint16_t>(80 + below(5))};
    const auto inside = blocks->enter({.outside = to.taken.outside,
                                       .remote = remote,
                                       .protocol = to.wanted.protocol,
                                       .now = {now}},
                                      false);
    const bool is_known = std::ranges::any_of(live, [&](const Session& one) {
      return one.wanted.protocol == to.wanted.protocol && one.taken.outside == to.taken.outside &&
             one.wanted.remote.address == remote.address;
    });
    const bool passes = filtering == Dependence::endpoint_independent ||
                        (filtering == Dependence::address_dependent && is_known);
    ASSERT_EQ(inside.has_value(), passes);
    if (inside) {
      ASSERT_EQ(inside->inside, to.wanted.inside);
      ASSERT_EQ(inside->customer, to.wanted.customer);
    }
  }
  EXPECT_GT(refused, 0U) << "the pool should run out at times";
  EXPECT_GT(foreseen, 1000U);
  EXPECT_GT(right, foreseen - foreseen / 10);
  const PoolUse use = blocks->use_of(0);
  EXPECT_EQ(use.sessions, live.size());
  for (const Session& one : live)
    blocks->release(one.taken.ref, one.wanted.protocol, one.wanted.remote.address, {now});
  EXPECT_EQ(blocks->use_of(0).sessions, 0U);
  EXPECT_EQ(blocks->use_of(0).mappings, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, PortBlocksTest,
                         testing::Combine(testing::Values(Dependence::endpoint_independent,
                                                          Dependence::address_dependent,
                                                          Dependence::address_and_port_dependent),
                                          testing::Values(Dependence::endpoint_independent,
                                                          Dependence::address_dependent,
                                                          Dependence::address_and_port_dependent)));

// A session from outside that was answered before a take-over counts here, too, however many others
// its customer has: otherwise its end would take back what it has not been counted for.
TEST(PortBlocks, CountASessionThatWasHeldElsewhereBeyondAllLimits) {
  constexpr std::uint32_t kMost = UINT16_MAX;
  NatPool pool = small_pool(Dependence::endpoint_independent, Dependence::endpoint_independent);
  pool.sessions_per_customer = kMost;
  const auto blocks = *PortBlocks::create(std::array{pool});
  const PortBlocks::Wanted wanted{.inside = {address_with(0x0a000001), 1},
                                  .remote = {address_with(0xc0000201), 80},
                                  .customer = 0x0a000001,
                                  .protocol = kProtocolUdp,
                                  .now = {0}};
  const auto taken = *blocks->take(wanted);
  for (std::uint32_t n = 1; n < kMost; ++n) ASSERT_TRUE(blocks->take(wanted));
  const AddressV4 stranger = address_with(0xc0000301);
  const auto from_outside = *blocks->enter(
      {.outside = taken.outside, .remote = {stranger, 9}, .protocol = kProtocolUdp, .now = {0}},
      true);
  EXPECT_FALSE(blocks->hold(from_outside.ref, kProtocolUdp, stranger, true));
  EXPECT_EQ(blocks->use_of(0).over_limit, 1U);
  EXPECT_TRUE(blocks->hold(from_outside.ref, kProtocolUdp, stranger, false));
  EXPECT_EQ(blocks->use_of(0).sessions, kMost + 1);
  blocks->release(from_outside.ref, kProtocolUdp, stranger, {1}, true);
  for (std::uint32_t n = 0; n < kMost; ++n)
    blocks->release(taken.ref, kProtocolUdp, wanted.remote.address, {1});
  EXPECT_EQ(blocks->use_of(0).sessions, 0U);
  EXPECT_EQ(blocks->use_of(0).over_limit, 1U);
}

// Workers that share tables do this.
TEST(PortBlocksThreads, GiveNoPortToTwo) {
  constexpr unsigned kThreads = 4;
  constexpr unsigned kPorts = 4 * 64;
  const NatPool pool = small_pool(Dependence::endpoint_independent, Dependence::address_dependent);
  const auto blocks = *PortBlocks::create(std::array{pool});
  // The inside endpoint of each public port, and behind it how many sessions there are.
  std::array<std::atomic<std::uint64_t>, 17 * kPorts> owners{};
  std::atomic<unsigned> wrong = 0;
  const auto owner_of = [&](const EndpointV4& end) -> auto& {
    return owners[(number_of(end.address) & 0x1f) * kPorts + end.port - pool.first_port];
  };
  const auto work = [&](unsigned thread) {
    std::mt19937 random(thread);
    std::vector<Session> live;
    const auto end = [&](Tick now) {
      const Session one = live.back();
      live.pop_back();
      owner_of(one.taken.outside).fetch_sub(1);
      blocks->release(one.taken.ref, kProtocolUdp, one.wanted.remote.address, now);
    };
    Tick now{0};
    for (unsigned step = 0; step < 40'000; ++step) {
      now.ms += static_cast<std::uint32_t>(random() % 40);
      if (random() % 2 == 0) {
        if (!live.empty()) end(now);
        continue;
      }
      const std::uint32_t host = static_cast<std::uint32_t>(random() % 16);
      const auto port = static_cast<std::uint16_t>(random() % 64);
      const PortBlocks::Wanted wanted{
          .inside = {address_with(0x0a000001 + host), port},
          .remote = {address_with(0xc0000201 + thread), static_cast<std::uint16_t>(step)},
          .customer = 0x0a000001 + host,
          .protocol = kProtocolUdp,
          .pool = 0,
          .now = now};
      std::array<EndpointV4, 1> likely;
      blocks->prefetch(std::array{wanted}, likely);
      const auto taken = blocks->take(wanted);
      if (!taken) continue;
      live.push_back({wanted, *taken});
      const std::uint64_t self = std::uint64_t{host + 1} << 48 | std::uint64_t{port} << 32;
      auto& owner = owner_of(taken->outside);
      std::uint64_t was = owner.load();
      do {
        if ((was & 0xffffffff) != 0 && was >> 32 != self >> 32) ++wrong;
      } while (!owner.compare_exchange_weak(was, self | ((was & 0xffffffff) + 1)));
    }
    while (!live.empty()) end(now);
  };
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < kThreads; ++n) threads.emplace_back(work, n);
  threads.clear();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(blocks->use_of(0).sessions, 0U);
  EXPECT_EQ(blocks->use_of(0).mappings, 0U);
  EXPECT_EQ(blocks->use_of(0).in_use(), 0U) << "all blocks rest";
}

}  // namespace
}  // namespace millrace
