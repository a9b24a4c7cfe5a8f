#include "host/tunnels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/protocol.h"
#include "core/test_seed.h"
#include "host/ethernet.h"
#include "host/ingress.h"
#include "parse/checksum.h"
#include "parse/parse.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::be;
using test::Bytes;
using test::bytes;
using test::operator+;

constexpr unsigned kLink = 1;
constexpr Mac kMac{{2, 0, 0, 0, 0, 1}};

AddressV4 at(const char* text) { return *parse_address<AddressV4>(text); }
Bytes raw(const char* address) {
  Bytes all;
  for (const std::uint8_t byte : at(address).bytes) all.push_back(std::byte{byte});
  return all;
}

/// Returns an IPv4 packet with a right header checksum.
Bytes packet(const char* source, const char* destination, unsigned protocol, const Bytes& payload,
             unsigned traffic_class = 0, unsigned fragment = 0) {
  Bytes ip = bytes({0x45, traffic_class}) + be(static_cast<unsigned>(20 + payload.size())) + be(0) +
             be(fragment) + bytes({64, protocol}) + be(0) + raw(source) + raw(destination);
  detail::store(&ip[10], internet_checksum(ip));
  return ip + payload;
}
Bytes inner(unsigned traffic_class = 0) {
  return packet("10.0.0.5", "192.0.2.7", kProtocolUdp, test::udp(20), traffic_class);
}
Bytes framed(const Bytes& ip) { return bytes({2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0}) + ip; }

class TunnelsTest : public testing::Test {
 protected:
  /// The outcome for one packet.
  struct Outcome {
    Zone customer = 0;
    Verdict verdict{};
    Bytes is;  ///< from the IP header on

    friend bool operator==(const Outcome&, const Outcome&) = default;
  };

  Outcome arrive(Bytes whole, unsigned link = kLink) {
    burst_->clear();
    burst_->size = 1;
    burst_->data[0] = whole.data();
    burst_->length[0] = static_cast<std::uint16_t>(whole.size());
    burst_->wire_length[0] = burst_->length[0];
    const Arrival arrival{0, 1, link};
    tunnels_.unwrap(*burst_, arrival);
    parse(*burst_, LinkType::ethernet);
    tunnels_.file(*burst_, {&arrival, 1});
    const std::byte* const begin = burst_->data[0] + kEthernetHeader;
    Outcome outcome{burst_->customer_of(0), burst_->verdict[0], {}};
    if (outcome.customer != 0)
      outcome.is.assign(begin, begin + burst_->length[0] - kEthernetHeader);
    return outcome;
  }
  /// Returns a customer's packet with that GRE header.
  static Bytes wrapped(const Bytes& gre, const Bytes& is = inner(), unsigned traffic_class = 0,
                       const char* from = "172.17.0.2") {
    return framed(packet(from, "172.16.0.1", kProtocolGre, gre + is, traffic_class));
  }
  static Bytes plain_gre() { return be(0) + be(kEtherTypeV4); }

  std::unique_ptr<Burst> burst_ = std::make_unique<Burst>();
  Tunnels tunnels_{
      std::make_shared<const Customers>(std::vector<CustomerGroup>{
          {.link = kLink, .ends = {at("172.17.0.0"), 24}, .key = {}, .name = {}},
          {.link = kLink, .ends = {at("172.17.0.2"), 32}, .key = 0x01020304, .name = "keyed"}}),
      std::vector<Tunnels::End>{{.link = kLink, .address = at("172.16.0.1"), .mac = kMac}}};
};

TEST_F(TunnelsTest, PacketsOfCustomersAreUnwrapped) {
  EXPECT_EQ(arrive(wrapped(plain_gre())), (Outcome{3, Verdict::tracked, inner()}));
  EXPECT_EQ(burst_->v4.key[0].number_of_zone(), 3U);
  EXPECT_EQ(burst_->v4.key[0].source, at("10.0.0.5"));
  EXPECT_EQ(burst_->wire_length[0], inner().size() + kEthernetHeader);
  // An Ethernet frame has 60 bytes at least.
  EXPECT_EQ(arrive(wrapped(plain_gre()) + test::zeros(9)).is, inner());
}

TEST_F(TunnelsTest, KeysSequenceNumbersAndChecksumsAreRead) {
  const Bytes key = bytes({1, 2, 3, 4});
  EXPECT_EQ(arrive(wrapped(be(0x2000) + be(kEtherTypeV4) + key)).customer, 257U);
  EXPECT_EQ(arrive(wrapped(be(0x1000) + be(kEtherTypeV4) + be(0) + be(9))).customer, 3U);
  Bytes gre = be(0xb000) + be(kEtherTypeV4) + be(0) + be(0) + key + be(0) + be(9);
  const std::uint16_t sum = internet_checksum(gre + inner());
  detail::store(&gre[4], sum);
  EXPECT_EQ(arrive(wrapped(gre)), (Outcome{257, Verdict::tracked, inner()}));
  detail::store(&gre[4], static_cast<std::uint16_t>(sum + 1));
  EXPECT_EQ(arrive(wrapped(gre)).verdict, Verdict::bad_tunnel);
}

TEST_F(TunnelsTest, OthersAreDroppedWithAReason) {
  EXPECT_EQ(arrive(wrapped(plain_gre(), inner(), 0, "172.17.1.2")).verdict, Verdict::no_customer);
  EXPECT_EQ(arrive(wrapped(be(0x2000) + be(kEtherTypeV4) + bytes({1, 2, 3, 5}))).verdict,
            Verdict::no_customer);
  EXPECT_EQ(arrive(wrapped(be(1) + be(0x880b))).verdict, Verdict::bad_tunnel) << "version 1, PPTP";
  EXPECT_EQ(arrive(wrapped(be(0x4000) + be(kEtherTypeV4))).verdict, Verdict::bad_tunnel);
  EXPECT_EQ(arrive(wrapped(be(0) + be(kEtherTypeV6))).verdict, Verdict::bad_tunnel);
  for (const unsigned fragment : {0x2000U, 0x2003U, 3U}) {
    EXPECT_EQ(arrive(framed(packet("172.17.0.2", "172.16.0.1", kProtocolGre, plain_gre() + inner(),
                                   0, fragment)))
                  .verdict,
              Verdict::tunnel_fragment);
  }
  Bytes wrong = wrapped(plain_gre());
  wrong[kEthernetHeader + 8] = std::byte{63};  // the header's checksum does not fit any more
  EXPECT_EQ(arrive(wrong).customer, 0U);
}

TEST_F(TunnelsTest, ThatEndElsewhereAreLeftAlone) {
  const Outcome left{0, Verdict::tracked, {}};
  EXPECT_EQ(arrive(framed(packet("172.17.0.2", "172.16.0.2", kProtocolGre, plain_gre() + inner()))),
            left);
  EXPECT_EQ(arrive(wrapped(plain_gre()), kLink + 1), left) << "on a port without tunnels";
  EXPECT_EQ(arrive(framed(inner())), left);
}

TEST_F(TunnelsTest, ReservedBitsThatMayBeIgnoredAre) {
  EXPECT_EQ(arrive(wrapped(be(0x03f8) + be(kEtherTypeV4))).customer, 3U);
}

// RFC 6040, 4.2: rows are the inner packet's field, columns the outer one's; both Not-ECT, ECT(1),
// ECT(0), CE. 9: dropped.
TEST_F(TunnelsTest, CongestionIsPassedOn) {
  constexpr unsigned kIs[4][4]{{0, 0, 0, 9}, {1, 1, 1, 3}, {2, 1, 2, 3}, {3, 3, 3, 3}};
  for (unsigned in = 0; in < 4; ++in) {
    for (unsigned out = 0; out < 4; ++out) {
      const Outcome outcome = arrive(wrapped(plain_gre(), inner(0x28 | in), 0x50 | out));
      if (kIs[in][out] == 9) {
        EXPECT_EQ(outcome.verdict, Verdict::bad_tunnel);
        continue;
      }
      EXPECT_EQ(outcome.is, inner(0x28 | kIs[in][out])) << in << " in " << out;
    }
  }
}

TEST_F(TunnelsTest, WhatIsWrappedIsTheSameUnwrapped) {
  for (const Zone customer : {1U, 256U, 257U}) {
    const auto tunnel = tunnels_.access_of(customer);
    Bytes memory = test::zeros(100) + framed(inner(0x2a));
    Outgoing out{.data = &memory[100], .length = static_cast<std::uint16_t>(memory.size() - 100)};
    tunnels_.wrap(out, *tunnel);
    EXPECT_EQ(out.length, framed(inner()).size() + Tunnels::overhead(*tunnel));
    EXPECT_EQ(out.data + out.length, memory.data() + memory.size());
    const std::byte* const ip = out.data + kEthernetHeader;
    EXPECT_EQ(internet_checksum({ip, 20}), 0);
    EXPECT_EQ(Bytes(ip + 12, ip + 16), raw("172.16.0.1"));
    EXPECT_EQ(Bytes(ip + 16, ip + 20), raw(to_string(tunnel->end).c_str()));
    EXPECT_EQ(detail::u16(ip + 6), 0x4000);
    EXPECT_EQ(detail::u8(ip + 1), 0x2a);
    // Back with its ends swapped, it is the customer's.
    Bytes back = framed(Bytes(ip, ip + out.length - kEthernetHeader));
    std::swap_ranges(&back[kEthernetHeader + 12], &back[kEthernetHeader + 16],
                     &back[kEthernetHeader + 16]);
    EXPECT_EQ(arrive(back), (Outcome{customer, Verdict::tracked, inner(0x2a)}));
  }
}

TEST_F(TunnelsTest, RandomBytesHarmNobody) {
  const std::uint64_t seed = test::seed();
  std::mt19937_64 random(seed);
  for (unsigned n = 0; n < 50'000; ++n) {
    Bytes whole = wrapped(be(static_cast<unsigned>(random()) & 0xb000U) + be(kEtherTypeV4),
                          bytes({1, 2, 3, 4}) + inner());
    for (std::uint64_t changes = random() % 3; changes > 0; --changes)
      whole[random() % whole.size()] = static_cast<std::byte>(random());
    if (random() % 2 == 0) whole.resize(random() % whole.size() + 1);
    whole.shrink_to_fit();  // so that a sanitizer sees what is read behind it
    const Outcome outcome = arrive(whole);
    if (outcome.customer != 0) {
      ASSERT_LE(outcome.is.size() + kEthernetHeader, whole.size()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace millrace
