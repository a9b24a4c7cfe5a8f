// Tests NAT at a server of a cluster: the addresses and ports of the pools that customers get.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "function/grants.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

constexpr Grants::Bits kAll = ~Grants::Bits{0};
constexpr std::uint32_t kRestMs = PortBlocks::kRestMs;

class NatInACluster : public NatTest {
 protected:
  /// Makes a NAT whose pool has an address for each of four shards.
  void use(const std::string& keys = "block_size = 512\n") {
    const auto [settings, problems] = read(text_of(keys));
    ASSERT_EQ(problems, "");
    FunctionRun run;
    run.is_live = true;
    run.share.grants = grants_;
    auto deployed = settings->kind().deploy(settings, run);
    ASSERT_TRUE(deployed.has_value()) << deployed.error().message;
    deployment_ = std::move(*deployed);
    line_ = std::make_unique<Line>(deployment_->make(0));
  }
  void grant(Grants::Bits usable, Grants::Bits rest, std::uint32_t at) {
    for (unsigned shard = 0; shard < grants_->shards(); ++shard)
      grants_->set(shard, usable, rest, Tick{at});
  }
  void pass(bool is_sure, std::uint32_t at) {
    for (unsigned shard = 0; shard < grants_->shards(); ++shard)
      grants_->pass(shard, is_sure, Tick{at});
    line_->at(at);
  }
  static KeyV4 key_of(const std::string& from, const std::string& to, std::uint8_t protocol) {
    return {.source = Line::host(from[0]),
            .destination = Line::host(to[0]),
            .source_port = static_cast<std::uint16_t>(std::stoi(port(from))),
            .destination_port = static_cast<std::uint16_t>(std::stoi(port(to))),
            .protocol = protocol};
  }
  /// Returns the shard of a packet.
  unsigned shard_of(const KeyV4& key) {
    const Steered steered = line_->function().steer({&key, 1}, {});
    EXPECT_EQ(steered.by_owner & steered.by_number, 1U);
    return number_of(steered.owner[0]);
  }
  static unsigned grant_of(const std::string& end) {
    return static_cast<unsigned>(std::stoi(port(end))) / Grants::kPorts;
  }

  std::shared_ptr<Grants> grants_ = std::make_shared<Grants>(4, Secret::from_seed(1));
};

TEST_F(NatInACluster, BothDirectionsOfAllProtocolsAreInTheShardOfTheAddress) {
  use();
  grant(kAll, 0, 1);
  std::set<unsigned> shards;
  for (char host = 'a'; host <= 'o'; ++host) {
    const std::string inside = std::string(1, host) + ":5000";
    const std::string end = public_end(inside, "z:80");
    const unsigned shard = shard_of(key_of(inside, "z:80", kProtocolUdp));
    shards.insert(shard);
    EXPECT_EQ(grants_->shard_of(Line::host(end[0])), shard);
    const std::string any_port = end.substr(0, 1) + ":0";
    for (const std::uint8_t protocol : {kProtocolUdp, kProtocolTcp, kProtocolIcmp, kProtocolGre}) {
      EXPECT_EQ(shard_of(key_of(inside, "y:0", protocol)), shard);
      EXPECT_EQ(shard_of(key_of("y:0", end, protocol)), shard);
      EXPECT_EQ(shard_of(key_of("y:0", any_port, protocol)), shard) << "a fragment has no port";
    }
  }
  EXPECT_EQ(shards.size(), 4U);
  const KeyV4 between = key_of("a:1", "b:2", kProtocolUdp);
  EXPECT_EQ(shard_of(between), shard_of(reversed(between)));
}

TEST_F(NatInACluster, WhatCustomersSendToEachOtherIsNotTranslated) {
  use();
  grant(kAll, 0, 1);
  EXPECT_EQ(public_end("a:5000", "b:80"), "no_service");
  EXPECT_NE(public_end("a:5000", "z:80"), "no_service");
}

TEST_F(NatInACluster, OnlyGrantedPortsAreGiven) {
  use();
  EXPECT_EQ(public_end("a:5000", "z:80"), "no_port");
  grant(Grants::range(3, 3), 0, 1);
  std::set<std::string> ends;
  for (int n = 0; n < 600; ++n) {
    const std::string end = public_end("a:" + std::to_string(6000 + n), "z:80");
    EXPECT_EQ(grant_of(end), 3U);
    ends.insert(end);
  }
  EXPECT_EQ(ends.size(), 600U) << "of two blocks";
  grant(0, 0, 2);
  EXPECT_EQ(public_end("a:5001", "z:80"), "no_port");
  EXPECT_EQ(public_end("a:6000", "y:80"), public_end("a:6000", "z:80")) << "a mapping lives on";
}

TEST_F(NatInACluster, ABlockNeedsAllGrantsOfItsPorts) {
  use("block_size = 1024\nports = \"1536-5631\"\n");
  grant(Grants::range(2, 2), 0, 1);
  EXPECT_EQ(public_end("a:5000", "z:80"), "no_port");
  grant(Grants::range(2, 3), 0, 1);
  const int port_is = std::stoi(port(public_end("a:5000", "z:80")));
  EXPECT_TRUE(port_is >= 2560 && port_is < 3584) << port_is;
}

TEST_F(NatInACluster, PortsThatOthersHadRest) {
  use();
  grant(Grants::range(3, 3), kAll, 1000);
  pass(true, 1000 + kRestMs - 1);
  EXPECT_EQ(public_end("a:5000", "z:80"), "no_port");
  pass(false, 1000 + kRestMs);
  EXPECT_EQ(public_end("a:5000", "z:80"), "no_port") << "another server may have a connection";
  pass(true, 1000 + 2 * kRestMs);
  const std::string end = public_end("a:5000", "z:80");
  EXPECT_EQ(grant_of(end), 3U);
  // The grant goes away, and comes back from another server: what the customer uses is his.
  grant(0, 0, 300'000);
  grant(Grants::range(3, 3), kAll, 300'000);
  pass(true, 300'001);
  EXPECT_EQ(grant_of(public_end("a:5001", "z:80")), 3U);
  EXPECT_EQ(public_end("b:5000", "z:80"), "no_port");
}

TEST_F(NatInACluster, PortsRestUntilNoOtherServerCanHaveThem) {
  use("block_size = 512\nblocks_per_customer = 1\nports = \"3072-3583\"\n");
  grant(kAll, 0, 1);
  line_->at(10);
  std::string first;
  std::string second;
  // Two customers of one shard, whose address has one block.
  for (char host = 'a'; second.empty(); ++host) {
    const std::string inside = std::string(1, host) + ":5000";
    if (shard_of(key_of(inside, "z:80", kProtocolUdp)) != 0) continue;
    (first.empty() ? first : second) = inside;
  }
  ASSERT_NE(public_end(first, "z:80"), "no_port");
  EXPECT_EQ(public_end(second, "z:80"), "no_port");
  line_->close({first, "z:80", kUdp, Line::kSyn});
  pass(false, 100'000);
  pass(true, 100'000 + kRestMs - 1);
  EXPECT_EQ(public_end(second, "z:80"), "no_port");
  pass(true, 100'000 + kRestMs);
  EXPECT_NE(public_end(second, "z:80"), "no_port");
}

TEST_F(NatInACluster, ADeterministicPoolGivesEachCustomerHisPorts) {
  use("block_size = 512\ndeterministic = true\n");
  for (char host = 'a'; host <= 'o'; ++host) {
    const std::string inside = std::string(1, host) + ":5000";
    const std::string end = public_end(inside, "z:80");
    EXPECT_EQ(grants_->shard_of(Line::host(end[0])),
              shard_of(key_of(inside, "z:80", kProtocolUdp)));
    EXPECT_EQ(shard_of(key_of("z:80", end, kProtocolUdp)), grants_->shard_of(Line::host(end[0])));
  }
}

TEST_F(NatInACluster, APoolWithoutAddressesForAllShardsIsRefused) {
  grants_ = std::make_shared<Grants>(8, Secret::from_seed(1));
  const auto [settings, problems] = read(text_of(""));
  FunctionRun run;
  run.share.grants = grants_;
  const auto deployed = settings->kind().deploy(settings, run);
  ASSERT_FALSE(deployed.has_value());
  EXPECT_EQ(deployed.error().message,
            "nat.pool p: each of a cluster's 8 shards (spread.entries) needs an address, and 4 "
            "have none: give 8 addresses that follow one another, such as a prefix of 29 bits, "
            "or more");
}

}  // namespace
}  // namespace millrace
