#include "shard/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "shard/indirection.h"
#include "shard/toeplitz.h"

namespace millrace {
namespace {

template <class K>
K random_key(std::mt19937_64& random) {
  K key;
  for (auto* address : {&key.source, &key.destination})
    for (auto& byte : address->bytes) byte = static_cast<std::uint8_t>(random());
  key.source_port = static_cast<std::uint16_t>(random());
  key.destination_port = static_cast<std::uint16_t>(random());
  key.protocol = 6;
  return key;
}

template <class K>
std::uint32_t hash_one(const Spread& spread, Side side, const K& key) {
  std::uint32_t hash = 0;
  const Steered steered{.by_source = side == Side::originator,
                        .by_destination = side == Side::reply};
  spread.hash(steered, std::span(&key, 1), std::span(&hash, 1));
  return hash;
}

class SpreadTest : public testing::TestWithParam<std::string> {
 protected:
  const SpreadKind& kind_ = *spread_named(GetParam());
  std::unique_ptr<Spread> spread_ = kind_.create(Secret::from_seed(7));
  std::mt19937_64 random_{7};
};

TEST_P(SpreadTest, BothDirectionsMeet) {
  for (unsigned i = 0; i < 1000; ++i) {
    const KeyV4 v4 = random_key<KeyV4>(random_);
    EXPECT_EQ(hash_one(*spread_, Side::originator, v4),
              hash_one(*spread_, Side::reply, reversed(v4)));
    // A function may take packets out of a zone.
    KeyV4 in_zone = v4;
    in_zone.set_zone(5);
    EXPECT_EQ(hash_one(*spread_, Side::originator, in_zone),
              hash_one(*spread_, Side::reply, reversed(v4)));
    const KeyV6 v6 = random_key<KeyV6>(random_);
    EXPECT_EQ(hash_one(*spread_, Side::originator, v6),
              hash_one(*spread_, Side::reply, reversed(v6)));
  }
}

TEST_P(SpreadTest, WhatIsRewrittenAtTheOtherEndChangesNothingByClient) {
  unsigned same = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    KeyV4 key = random_key<KeyV4>(random_);
    const auto before = hash_one(*spread_, Side::originator, key);
    key.destination = random_key<KeyV4>(random_).destination;
    key.destination_port = 8080;
    same += hash_one(*spread_, Side::originator, key) == before;
  }
  EXPECT_EQ(same == 1000, kind_.by_client) << same;
}

TEST_P(SpreadTest, WorkersGetEqualShares) {
  const Indirection indirection(512, 3);
  std::array<unsigned, 3> count{};
  constexpr unsigned kKeys = 30000;
  for (unsigned i = 0; i < kKeys; ++i) {
    const auto hash = hash_one(*spread_, Side::originator, random_key<KeyV6>(random_));
    ++count[indirection.worker_of(indirection.shard_of(hash))];
  }
  for (const unsigned n : count) EXPECT_NEAR(n, kKeys / 3, kKeys / 30);
}

INSTANTIATE_TEST_SUITE_P(All, SpreadTest, testing::ValuesIn(spread_names()), [](const auto& kind) {
  std::string name = kind.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Under a key with a 16-bit pattern that repeats, Toeplitz's hash depends only on the XOR of the
// input's 16-bit words: flows with the same XOR all collide.
TEST(SpreadAttack, FlowsAimedAtSymmetricKeysSpreadByDefault) {
  std::mt19937_64 random(11);
  std::vector<KeyV4> flows(2000);
  for (KeyV4& key : flows) {
    key = random_key<KeyV4>(random);
    std::uint16_t rest = 0x1234;
    for (const auto* address : {&key.source, &key.destination}) {
      for (std::size_t i = 0; i < 4; i += 2)
        rest ^= static_cast<std::uint16_t>(address->bytes[i] << 8 | address->bytes[i + 1]);
    }
    key.destination_port = rest ^ key.source_port;
  }
  for (unsigned n = 0; n < 16; ++n) {
    ToeplitzSpread::RssKey periodic = ToeplitzSpread::symmetric_key();
    for (std::size_t i = 0; n > 0 && i < periodic.size(); ++i)
      periodic[i] = i < 2 ? static_cast<std::uint8_t>(random()) : periodic[i - 2];
    const ToeplitzSpread aimed_at(periodic, ToeplitzSpread::Ends::both);
    for (const KeyV4& key : flows) {
      ASSERT_EQ(hash_one(aimed_at, Side::originator, key),
                hash_one(aimed_at, Side::originator, flows[0]));
    }
  }
  const auto spread = spreads().front().create(Secret::from_seed(11));
  const Indirection indirection(512, 8);
  std::array<unsigned, 8> count{};
  for (const KeyV4& key : flows) {
    const auto hash = hash_one(*spread, Side::originator, key);
    ++count[indirection.worker_of(indirection.shard_of(hash))];
  }
  // A worker gets 250 flows on average, with a standard deviation of 15.
  for (const unsigned n : count) EXPECT_NEAR(n, 250, 90);
}

constexpr ToeplitzSpread::RssKey kMicrosoftKey{
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

// Test vectors from Microsoft, "Verifying the RSS Hash Calculation".
TEST(Toeplitz, IsTheHashOfNics) {
  const ToeplitzSpread spread(kMicrosoftKey, ToeplitzSpread::Ends::both);
  const KeyV4 v4{{{66, 9, 149, 187}}, {{161, 142, 100, 80}}, 2794, 1766, 6, {}};
  EXPECT_EQ(hash_one(spread, Side::originator, v4), 0x51ccc178U);
  const KeyV4 other{{{199, 92, 111, 2}}, {{65, 69, 140, 83}}, 14230, 4739, 6, {}};
  EXPECT_EQ(hash_one(spread, Side::originator, other), 0xc626b0eaU);
  // 3ffe:2501:200:1fff::7 to 3ffe:2501:200:3::1
  const KeyV6 v6{{{0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7}},
                 {{0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 1}},
                 2794,
                 1766,
                 6,
                 {}};
  EXPECT_EQ(hash_one(spread, Side::originator, v6), 0x40207d3dU);
}

TEST(Toeplitz, VectorsHashAsBytesDo) {
  std::mt19937_64 random(13);
  const ToeplitzSpread spread(ToeplitzSpread::random_key(Secret::from_seed(13)),
                              ToeplitzSpread::Ends::client);
  for (std::size_t size = 1; size <= 36; ++size) {
    std::vector<std::uint8_t> input(size);
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random());
    EXPECT_EQ(spread.hash_bytes(input), spread.hash_bytes_portable(input)) << size;
  }
}

}  // namespace
}  // namespace millrace
