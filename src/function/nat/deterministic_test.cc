// Tests pools whose customers have ports by their places (RFC 7422).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "function/nat/port_blocks.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

NatPool pool_for(std::vector<std::pair<CustomerNumber, std::uint64_t>> customers) {
  NatPool pool{.name = "p",
               .prefixes = {{address_with(0xc6336402), 31}, {address_with(0xc6336410), 32}},
               .first_port = 1024,
               .last_port = 1024 + 9 * 64 - 1,
               .block_size = 64,
               .blocks_per_customer = 2,
               .is_deterministic = true};
  for (const auto& [first, count] : customers) pool.places.add(first, count, 1);
  return pool;
}

PortBlocks::Wanted wanted_by(CustomerNumber customer, std::uint16_t port, Tick now) {
  return {.inside = {address_with(customer), port},
          .remote = {address_with(0xc0000201), 80},
          .customer = customer,
          .protocol = kProtocolUdp,
          .pool = 0,
          .now = now};
}

TEST(CustomerPlaces, CountCustomersInTheOrderInWhichTheyAreAdded) {
  CustomerPlaces places;
  places.add(100, 10, 1);
  places.add(1000, 4, 256);
  places.add(105, 3, 1);  // they are there
  places.add(108, 4, 1);  // two are
  EXPECT_EQ(places.size(), 18U);
  EXPECT_EQ(places.place_of(100), 0U);
  EXPECT_EQ(places.place_of(1000 + 3 * 256), 13U);
  EXPECT_EQ(places.place_of(1001), std::nullopt);
  EXPECT_EQ(places.place_of(99), std::nullopt);
  EXPECT_EQ(places.place_of(109), 9U);
  EXPECT_EQ(places.place_of(111), 17U);
  EXPECT_EQ(places.at(12), 1000U + 2 * 256);
  EXPECT_EQ(places.at(14), std::nullopt) << "108 has another place";
  EXPECT_EQ(places.at(18), std::nullopt);
}

// Four ranges of an address, so twelve in all.
TEST(DeterministicPools, GiveACustomerThePortsOfHisPlace) {
  const NatPool pool = pool_for({{0x0a000001, 5}, {7, 6}});
  EXPECT_EQ(pool.ranges(), 12U);
  const auto blocks = *PortBlocks::create(std::array{pool});
  std::map<CustomerNumber, std::set<std::uint16_t>> ports;
  for (std::uint16_t n = 0; n < 300; ++n) {
    for (std::uint32_t place = 0; place < 11; ++place) {
      const CustomerNumber customer = place < 5 ? 0x0a000001 + place : 7 + place - 5;
      const auto taken = blocks->take(wanted_by(customer, n, {n}));
      ASSERT_EQ(taken.has_value(), n < 128) << "he has two blocks";
      if (!taken) continue;
      // Counted by hand: addresses .2, .3, .16; 128 ports each from 1024 on.
      const std::array<std::uint32_t, 3> addresses{0xc6336402, 0xc6336403, 0xc6336410};
      ASSERT_EQ(number_of(taken->outside.address), addresses[place / 4]);
      ASSERT_EQ((taken->outside.port - 1024) / 128, place % 4);
      ASSERT_EQ(pool.customer_of(taken->outside.address, taken->outside.port), customer);
      ports[customer].insert(taken->outside.port);
    }
  }
  for (const auto& [customer, of] : ports) EXPECT_EQ(of.size(), 128U);
  EXPECT_EQ(blocks->take(wanted_by(99, 1, {})).error(), Verdict::no_port) << "a stranger";
  EXPECT_EQ(pool.customer_of(address_with(0xc6336410), 1024 + 3 * 128), std::nullopt);
  EXPECT_EQ(pool.customer_of(address_with(0xc6336402), 1024 + 4 * 128), std::nullopt);
  EXPECT_EQ(pool.customer_of(address_with(0xc6336402), 1023), std::nullopt);
}

TEST(DeterministicPools, AreNotLogged) {
  const auto blocks = *PortBlocks::create(std::array{pool_for({{1, 12}})});
  blocks->events().open({.refuses = true});
  blocks->events().set_failing(true);
  const auto taken = blocks->take(wanted_by(3, 1, {}));
  ASSERT_TRUE(taken) << "no record is needed";
  EXPECT_TRUE(blocks->events().is_empty());
  EXPECT_EQ(blocks->customer_of(taken->ref.block()), 0U);
}

TEST(DeterministicPools, RestWherePlacesChange) {
  const auto blocks = *PortBlocks::create(std::array{pool_for({{1, 12}})});
  const auto first = *blocks->take(wanted_by(1, 1, {}));
  const auto second = *blocks->take(wanted_by(2, 1, {}));
  // Customers 2 and 1 change their places, the others keep theirs.
  const auto next = *blocks->changed_to(std::array{pool_for({{2, 1}, {1, 1}, {3, 10}})});
  next->replace(*blocks, {1000});
  EXPECT_FALSE(next->may_keep(first.ref, 0, 1));
  EXPECT_FALSE(next->may_keep(second.ref, 0, 2));
  next->release(first.ref, kProtocolUdp, {}, {2000});
  next->release(second.ref, kProtocolUdp, {}, {3000});
  EXPECT_TRUE(next->take(wanted_by(3, 1, {3000})));
  EXPECT_EQ(next->take(wanted_by(2, 1, {121'999}))->outside.port / 64, (1024 + 64) / 64)
      << "the block that nobody has had";
  EXPECT_EQ(next->take(wanted_by(1, 1, {122'999}))->outside.port / 64, (1024 + 128 + 64) / 64);
  const PoolUse use = next->use_of(0);
  EXPECT_EQ(use.held, 3U);
}

// The customer of place 1 had the blocks 2 and 3, and now has 3 to 5: he loses both of the former,
// although one is again his.
TEST(DeterministicPools, LostBlocksAreNotTakenAgain) {
  const auto blocks = *PortBlocks::create(std::array{pool_for({{1, 9}})});
  PortBlocks::Taken last;
  for (std::uint16_t n = 0; n <= 64; ++n) last = *blocks->take(wanted_by(2, n, {}));
  EXPECT_EQ((last.outside.port - 1024) / 64, 3);
  NatPool wider = pool_for({{1, 9}});
  wider.blocks_per_customer = 3;
  const auto next = *blocks->changed_to(std::array{wider});
  next->replace(*blocks, {1000});
  const PortBlocks::Wanted wanted = wanted_by(2, 64, {1000});
  EXPECT_FALSE(next->take_again(wanted, last.outside, next->ends_of(wanted), true));
  EXPECT_EQ((next->take(wanted)->outside.port - 1024) / 64, 4) << "a block that he never had";
}

TEST_F(NatTest, RefusesCustomersThatDoNotFit) {
  const auto problem = [this](const std::string& keys, const std::string& of_rule = "") {
    return read(text_of("deterministic = true\n" + keys, of_rule)).second;
  };
  EXPECT_EQ(problem(""), "");
  EXPECT_EQ(problem("blocks_per_customer = 31"), "") << "16 customers at 4 addresses";
  EXPECT_EQ(problem("blocks_per_customer = 32"),
            "f:1: nat.pool.deterministic: the rules of the pool \"p\" have 16 customers, but its 4 "
            "addresses have 12 ranges of 16384 ports: give more addresses, fewer "
            "blocks_per_customer, or customers to another pool");
  EXPECT_EQ(problem("blocks_per_customer = 32", "customer_prefix = 31"), "");
}

TEST_F(NatTest, ViewsAnswerByPlace) {
  use("deterministic = true\nblocks_per_customer = 8\nblock_size = 64");
  // 15 ranges of 512 ports and more; place 3 is that of the customer with the address 10.0.0.3.
  const std::string end = public_end("c:1", "z:80");
  EXPECT_EQ(end.substr(0, 2), "p:");
  EXPECT_EQ((std::stoi(end.substr(2)) - 1024) / 512, 3);
  const auto explained = deployment_->view()->explain(KeyV4{.source = Line::host('z'),
                                                            .destination = Line::host('p'),
                                                            .source_port = 1,
                                                            .destination_port = 1024 + 5 * 512,
                                                            .protocol = kUdp},
                                                      nullptr, false);
  EXPECT_NE(explained.why.find("a public port of 10.0.0.5"), std::string::npos) << explained.why;
}

}  // namespace
}  // namespace millrace
