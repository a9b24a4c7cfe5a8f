// Changes pools while sessions use them, in random steps that a model judges, and while threads do.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "function/nat/port_blocks.h"

namespace millrace {
namespace {

constexpr std::uint32_t kFirst = 0xc6336400;  // public addresses

NatPool pool_of(const std::string& name, std::vector<unsigned> addresses) {
  NatPool pool{.name = name, .first_port = 1024, .last_port = 1024 + 4 * 64 - 1, .block_size = 64};
  for (const unsigned address : addresses)
    pool.prefixes.push_back({address_with(kFirst + address), 32});
  pool.blocks_per_customer = 2;
  return pool;
}

PortBlocks::Wanted wanted_by(CustomerNumber customer, std::uint16_t port, std::uint16_t pool,
                             Tick now) {
  return {.inside = {address_with(customer), port},
          .remote = {address_with(0xc0000201), 80},
          .customer = customer,
          .protocol = kProtocolUdp,
          .pool = pool,
          .now = now};
}

/// Two pools with some of eight addresses each, and the pool of each customer.
struct Pools {
  std::vector<NatPool> all;
  std::array<std::string, 16> of_customer;

  const NatPool* named(const std::string& name) const {
    const auto at = std::ranges::find(all, name, &NatPool::name);
    return at == all.end() ? nullptr : &*at;
  }
  std::optional<std::uint16_t> pool_of(unsigned customer) const {
    const NatPool* const is = named(of_customer[customer]);
    if (is == nullptr) return std::nullopt;
    return static_cast<std::uint16_t>(is - all.data());
  }
};

Pools random_pools(std::mt19937& random, const Pools& before) {
  Pools is = before;
  const auto one_in = [&random](unsigned n) { return random() % n == 0; };
  std::array<unsigned, 8> whose{};
  const bool changes_all = one_in(10);
  for (unsigned address = 0; address < 8; ++address) {
    for (unsigned n = 0; n < 2; ++n) {
      const NatPool* const was = before.named(n == 0 ? "p" : "q");
      if (was != nullptr && was->has(address_with(kFirst + address))) whose[address] = n + 1;
    }
    if (changes_all || one_in(8)) whose[address] = static_cast<unsigned>(random() % 3);
  }
  is.all.clear();
  for (unsigned n = 0; n < 2; ++n) {
    const std::string name = n == 0 ? "p" : "q";
    std::vector<unsigned> addresses;
    for (unsigned address = 0; address < 8; ++address) {
      if (whose[address] == n + 1) addresses.push_back(address);
    }
    if (addresses.empty()) continue;
    NatPool pool = pool_of(name, std::move(addresses));
    if (const NatPool* const was = before.named(name)) {
      pool.block_size = was->block_size;
      pool.first_port = was->first_port;
      pool.filtering = was->filtering;
    }
    if (one_in(15)) pool.block_size = one_in(2) ? 64 : 128;
    if (one_in(15)) pool.first_port = one_in(2) ? 1024 : 1056;
    if (one_in(8)) pool.filtering = Dependence(random() % 3);
    pool.sessions_per_customer = 50 + static_cast<std::uint32_t>(random() % 100);
    is.all.push_back(std::move(pool));
  }
  if (one_in(2)) std::ranges::reverse(is.all);
  for (std::string& name : is.of_customer) {
    if (name.empty() || one_in(40)) name = one_in(2) ? "p" : "q";
  }
  return is;
}

class PoolsThatChange : public testing::Test {
 protected:
  struct Session {
    unsigned customer;
    std::string pool;
    PortBlocks::Wanted wanted;
    PortBlocks::Taken taken;
  };
  struct Used {
    unsigned customer = 99;
    std::uint32_t last = 0;  // ms
  };
  using Port = std::pair<std::uint32_t, std::uint16_t>;

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  /// Begins or ends a session by these blocks, which belong to these pools. `changes`: they do not
  /// belong to all workers yet, or no more.
  void step(PortBlocks& blocks, const Pools& pools, bool changes = false) {
    now_ += below(below(100) == 0 ? 60'000 : 20);
    if (!live_.empty() && below(100) < 45)
      return end(blocks, below(static_cast<std::uint32_t>(live_.size())));
    const unsigned customer = below(16);
    const auto pool = pools.pool_of(customer);
    if (!pool) return;
    const auto wanted =
        wanted_by(0x0a000001 + customer, static_cast<std::uint16_t>(below(150)), *pool, {now_});
    const auto taken = blocks.take(wanted);
    if (!taken) {
      ++refused_;
      return;
    }
    ++begun_;
    ASSERT_TRUE(changes || pools.all[*pool].has(taken->outside.address));
    const Port port{number_of(taken->outside.address), taken->outside.port};
    Used& used = used_[port];
    if (used.customer != 99 && used.customer != customer) {
      ASSERT_GE(now_ - used.last, PortBlocks::kRestMs) << "it did not rest";
    }
    for (const Session& one : live_) {
      if (one.taken.outside == taken->outside) {
        ASSERT_EQ(one.customer, customer);
      }
    }
    used = {customer, now_};
    live_.push_back({customer, pools.all[*pool].name, wanted, *taken});
    read_log(blocks);
    ASSERT_EQ(logged_[port], wanted.customer);
    if (!changes) {
      ASSERT_EQ(blocks.customer_at(taken->outside), wanted.customer);
    }
  }
  void end(PortBlocks& blocks, std::size_t at) {
    const Session one = live_[at];
    live_[at] = live_.back();
    live_.pop_back();
    blocks.release(one.taken.ref, kProtocolUdp, one.wanted.remote.address, {now_});
    used_[{number_of(one.taken.outside.address), one.taken.outside.port}].last = now_;
  }
  /// Applies the records so far: each port is one customer's at a time.
  void read_log(PortBlocks& blocks) {
    BlockEvent event;
    while (blocks.events().take(event)) {
      const HeldBlock block = *blocks.block(event.block);
      for (std::uint32_t port = block.first_port; port <= block.last_port; ++port) {
        CustomerNumber& is = logged_[{number_of(block.address), static_cast<std::uint16_t>(port)}];
        if (event.is_allocated) {
          ASSERT_EQ(is, 0U);
        } else {
          ASSERT_EQ(is, event.customer);
        }
        is = event.is_allocated ? event.customer : 0;
      }
    }
  }
  /// Returns whether a session should survive that change.
  static bool survives(const Session& one, const Pools& before, const Pools& after) {
    const NatPool* const was = before.named(one.pool);
    const NatPool* const is = after.named(one.pool);
    if (was == nullptr || is == nullptr || after.of_customer[one.customer] != one.pool)
      return false;
    const bool had_peers = was->filtering == Dependence::address_dependent;
    const bool has_peers = is->filtering == Dependence::address_dependent;
    return was->has(one.taken.outside.address) && is->has(one.taken.outside.address) &&
           was->block_size == is->block_size && was->first_port == is->first_port &&
           (was->last_port - was->first_port + 1) / was->block_size ==
               (is->last_port - is->first_port + 1) / is->block_size &&
           had_peers == has_peers;
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  std::uint32_t now_ = 0;
  std::vector<Session> live_;
  std::map<Port, Used> used_;
  std::map<Port, CustomerNumber> logged_;
  unsigned begun_ = 0;
  unsigned refused_ = 0;
};

TEST_F(PoolsThatChange, DoWhatAModelSays) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Pools pools = random_pools(random_, {});
  std::unique_ptr<PortBlocks> blocks = *PortBlocks::create(pools.all);
  blocks->events().open({});
  unsigned stayed = 0;
  unsigned ended = 0;
  for (unsigned change = 0; change < 400; ++change) {
    const unsigned steps = below(600);
    for (unsigned n = 0; n < steps; ++n) ASSERT_NO_FATAL_FAILURE(step(*blocks, pools));
    Pools next_pools = random_pools(random_, pools);
    std::unique_ptr<PortBlocks> next = *blocks->changed_to(next_pools.all);
    // Some workers have changed already. A customer has one worker.
    const std::vector<Session> opened(live_);
    for (unsigned n = 0; n < 40; ++n) {
      const bool has_changed = below(2) == 0;
      ASSERT_NO_FATAL_FAILURE(
          step(has_changed ? *next : *blocks, has_changed ? next_pools : pools, true));
    }
    next->replace(*blocks, {now_});
    for (unsigned n = 0; n < 20; ++n) ASSERT_NO_FATAL_FAILURE(step(*next, next_pools));
    std::vector<std::size_t> ends;
    for (std::size_t n = 0; n < live_.size(); ++n) {
      const Session& one = live_[n];
      const auto pool = next_pools.pool_of(one.customer);
      const bool stays = pool && next->may_keep(one.taken.ref, *pool, one.wanted.customer);
      const bool was_there = std::ranges::any_of(opened, [&](const Session& other) {
        return other.taken.outside == one.taken.outside && other.customer == one.customer;
      });
      if (was_there) {
        ASSERT_EQ(stays, survives(one, pools, next_pools));
      }
      if (!stays) ends.push_back(n);
      ++(stays ? stayed : ended);
    }
    for (; !ends.empty(); ends.pop_back()) {
      now_ += below(3);
      end(*next, ends.back());
    }
    ASSERT_NO_FATAL_FAILURE(read_log(*next));
    for (const Session& one : live_) {
      ASSERT_EQ(next->customer_at(one.taken.outside), one.wanted.customer);
      ASSERT_EQ(logged_.at({number_of(one.taken.outside.address), one.taken.outside.port}),
                one.wanted.customer);
    }
    std::size_t sessions = 0;
    std::size_t held = 0;
    for (std::size_t n = 0; n < next_pools.all.size(); ++n) {
      sessions += next->use_of(n).sessions;
      held += next->use_of(n).held * next_pools.all[n].block_size;
      ASSERT_LE(next->use_of(n).held, next->use_of(n).blocks);
    }
    ASSERT_EQ(sessions, live_.size());
    ASSERT_EQ(held, static_cast<std::size_t>(std::ranges::count_if(
                        logged_, [](const auto& one) { return one.second != 0; })))
        << "the log says that customers have other blocks";
    blocks = std::move(next);
    pools = std::move(next_pools);
  }
  RecordProperty("counts", std::to_string(begun_) + " begun, " + std::to_string(refused_) +
                               " refused, " + std::to_string(stayed) + " stayed, " +
                               std::to_string(ended) + " ended");
  EXPECT_GT(begun_, 10'000U);
  EXPECT_GT(refused_, 100U);
  EXPECT_GT(stayed, 500U);
  EXPECT_GT(ended, 300U);
  EXPECT_LT(blocks->end(), 10'000U) << "numbers of blocks are used again";
}

TEST(PoolsThatChangeOnce, RestWhereTheyHadOtherBlocks) {
  const auto old = pool_of("p", {0, 1});
  auto blocks = *PortBlocks::create(std::array{old});
  const auto first = *blocks->take(wanted_by(1, 1, 0, {1000}));
  auto larger = old;
  larger.block_size = 128;
  larger.prefixes = {{first.outside.address, 32}};
  auto next = *blocks->changed_to(std::array{larger});
  next->replace(*blocks, {2000});
  EXPECT_FALSE(next->may_keep(first.ref, 0, 1));
  // The other block of the address was nobody's.
  const auto second = *next->take(wanted_by(2, 1, 0, {2001}));
  EXPECT_NE((first.outside.port - 1024) / 128, (second.outside.port - 1024) / 128);
  next->release(first.ref, kProtocolUdp, {}, {5000});
  EXPECT_FALSE(next->take(wanted_by(3, 1, 0, {124'999})));
  EXPECT_TRUE(next->take(wanted_by(3, 1, 0, {125'000}))) << "120 s after the last session";
}

TEST(PoolsThatChangeOnce, ComeBackWithTheBlocksThatTheyHad) {
  const auto all = pool_of("p", {0, 1});
  auto blocks = *PortBlocks::create(std::array{all});
  const auto taken = *blocks->take(wanted_by(1, 1, 0, {1000}));
  blocks->release(taken.ref, kProtocolUdp, {}, {2000});
  const auto without = pool_of("p", {number_of(taken.outside.address) == kFirst ? 1U : 0U});
  auto next = *blocks->changed_to(std::array{without});
  next->replace(*blocks, {3000});
  EXPECT_EQ(next->use_of(0).held, 0U);
  auto last = *next->changed_to(std::array{all});
  last->replace(*next, {4000});
  EXPECT_EQ(last->end(), blocks->end());
  const PoolUse use = last->use_of(0);
  EXPECT_EQ(use.blocks, 8U);
  EXPECT_EQ(use.held, 0U);
  // Its block rests; all others are free.
  unsigned given = 0;
  for (CustomerNumber customer = 2; customer < 20; ++customer)
    given += last->take(wanted_by(customer, 1, 0, {5000})).has_value();
  EXPECT_EQ(given, 7U);
  EXPECT_TRUE(last->take(wanted_by(20, 1, 0, {122'000})));
}

TEST(PoolsInUse, AreNearlyEmptyFrom90UntilBelow80Percent) {
  auto pool = pool_of("p", {0, 1, 2, 3, 4});  // 20 blocks
  pool.sessions_per_customer = 10;
  const auto blocks = *PortBlocks::create(std::array{pool});
  std::vector<PortBlocks::Taken> taken;
  for (CustomerNumber n = 1; n <= 18; ++n) {
    EXPECT_FALSE(blocks->is_nearly_empty(0));
    taken.push_back(*blocks->take(wanted_by(n, 1, 0, {})));
  }
  EXPECT_TRUE(blocks->is_nearly_empty(0));
  const auto end = [&] {
    blocks->release(taken.back().ref, kProtocolUdp, {}, {});
    taken.pop_back();
    return blocks->is_nearly_empty(0);
  };
  EXPECT_TRUE(end());
  EXPECT_TRUE(end()) << "80 %";
  EXPECT_FALSE(end());
  EXPECT_EQ(blocks->use_of(0).held, 18U) << "three of them rest";
  EXPECT_EQ(blocks->use_of(0).in_use(), 15U);
  for (std::uint16_t n = 2; n <= 9; ++n) taken.push_back(*blocks->take(wanted_by(7, n, 0, {})));
  taken.push_back(*blocks->take(wanted_by(3, 2, 0, {})));
  const auto nearest = blocks->nearest_to_limit(0, 2);
  ASSERT_EQ(nearest.size(), 2U);
  EXPECT_EQ(nearest[0].customer, 7U);
  EXPECT_EQ(nearest[0].sessions, 9U);
  EXPECT_EQ(nearest[0].ports, 9U);
  EXPECT_EQ(nearest[0].percent, 90U);
  EXPECT_EQ(nearest[1].customer, 3U);
  EXPECT_EQ(nearest[1].percent, 20U);
}

TEST(PoolsThatChangeOnce, AreRefusedWhereTheyAreTooLarge) {
  auto blocks = *PortBlocks::create(std::array{pool_of("p", {0})});
  auto large = pool_of("p", {0});
  large.last_port = 65535;
  large.prefixes = {{address_with(0x0a000000), 16}};
  auto larger = large;
  larger.name = "q";
  larger.prefixes = {{address_with(0x0b000000), 16}};
  const auto refused = blocks->changed_to(std::array{large, larger});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Error::Kind::usage);
  EXPECT_TRUE(blocks->take(wanted_by(1, 1, 0, {})));
  EXPECT_EQ(blocks->use_of(0).blocks, 4U);
}

// Workers begin and end sessions while another thread changes the pools, as a reload does.
TEST(PoolsThatChangeThreads, GiveNoPortToTwo) {
  constexpr unsigned kThreads = 3;
  constexpr unsigned kChanges = 15;
  struct Worker {
    std::shared_ptr<PortBlocks> blocks;
    std::atomic<std::shared_ptr<PortBlocks>*> next = nullptr;  // what it is to change to
    std::atomic<bool> reviews = false;
    std::atomic<std::uint32_t> tick = 0;
  };
  const std::array choices{pool_of("p", {0, 1, 2}), pool_of("p", {1, 2, 3}), pool_of("p", {3}),
                           pool_of("q", {0, 1})};
  std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(std::array{choices[0]});
  std::array<Worker, kThreads> workers;
  for (Worker& one : workers) one.blocks = blocks;
  std::array<std::atomic<std::uint64_t>, 4 * 256> owners{};
  std::atomic<unsigned> wrong = 0;
  std::atomic<bool> is_over = false;
  const auto owner_of = [&](const EndpointV4& end) -> auto& {
    return owners[(number_of(end.address) - kFirst) * 256 + end.port - 1024U];
  };
  const auto work = [&](unsigned thread) {
    Worker& self = workers[thread];
    std::mt19937 random(thread);
    struct Live {
      PortBlocks::Wanted wanted;
      PortBlocks::Taken taken;
    };
    std::vector<Live> live;
    Tick now{0};
    const auto end = [&](std::size_t at) {
      const Live one = live[at];
      live[at] = live.back();
      live.pop_back();
      owner_of(one.taken.outside).fetch_sub(1);
      self.blocks->release(one.taken.ref, kProtocolUdp, one.wanted.remote.address, now);
    };
    while (!is_over || !live.empty()) {
      now.ms += static_cast<std::uint32_t>(random() % 40);
      if (auto* const next = self.next.load()) {
        self.blocks.swap(*next);
        self.tick = now.ms;
        self.next = nullptr;
      }
      if (self.reviews) {
        for (std::size_t n = live.size(); n-- > 0;) {
          if (!self.blocks->may_keep(live[n].taken.ref, 0, live[n].wanted.customer)) end(n);
        }
        self.reviews = false;
      }
      if (is_over || random() % 2 == 0) {
        if (!live.empty()) end(random() % live.size());
        continue;
      }
      const CustomerNumber customer = 0x0a000001 + thread * 8 + static_cast<unsigned>(random() % 8);
      const auto wanted = wanted_by(customer, static_cast<std::uint16_t>(random() % 64), 0, now);
      std::array<EndpointV4, 1> likely;
      self.blocks->prefetch(std::array{wanted}, likely);
      const auto taken = self.blocks->take(wanted);
      if (!taken) continue;
      live.push_back({wanted, *taken});
      auto& owner = owner_of(taken->outside);
      std::uint64_t was = owner.load();
      do {
        if ((was & 0xffffffff) != 0 && was >> 32 != customer) ++wrong;
      } while (!owner.compare_exchange_weak(
          was, std::uint64_t{customer} << 32 | ((was & 0xffffffff) + 1)));
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < kThreads; ++n) threads.emplace_back(work, n);
  std::mt19937 random(99);
  for (unsigned change = 0; change < kChanges; ++change) {
    const NatPool& pool = choices[random() % choices.size()];
    const std::shared_ptr<PortBlocks> next = *blocks->changed_to(std::array{pool});
    std::array<std::shared_ptr<PortBlocks>, kThreads> each;
    std::uint32_t tick = 0;
    for (unsigned n = 0; n < kThreads; ++n) {
      each[n] = next;
      workers[n].next = &each[n];
      while (workers[n].next != nullptr) std::this_thread::yield();
      tick = std::max(tick, workers[n].tick.load());
    }
    next->replace(*blocks, {tick});
    blocks = next;
    for (Worker& one : workers) {
      one.reviews = true;
      while (one.reviews) std::this_thread::yield();
    }
    static_cast<void>(blocks->use_of(0));
  }
  is_over = true;
  threads.clear();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(blocks->use_of(0).sessions, 0U);
  EXPECT_EQ(blocks->use_of(0).mappings, 0U);
  EXPECT_EQ(blocks->use_of(0).in_use(), 0U) << "all blocks rest";
}

}  // namespace
}  // namespace millrace
