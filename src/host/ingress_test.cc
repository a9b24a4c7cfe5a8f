// Tests which packets a router takes in: one frame a line, with its verdict.
#include "host/ingress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/protocol.h"
#include "host/answered_pings.h"
#include "host/host.h"
#include "host/known_addresses.h"
#include "host/notice.h"
#include "parse/parse.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::be;
using test::Bytes;
using test::bytes;
using test::operator+;

const Bytes kUs = bytes({2, 0, 0, 0, 0, 1});
const Bytes kOurOther = bytes({2, 0, 0, 0, 0, 2});
const Bytes kThem = bytes({2, 0, 0, 0, 0, 9});
const Bytes kAll = bytes({255, 255, 255, 255, 255, 255});

template <class A>
Bytes raw(const std::string& address) {
  const A parsed = *parse_address<A>(address);
  Bytes all;
  for (const auto byte : parsed.bytes) all.push_back(std::byte{byte});
  return all;
}

/// Returns a packet from `source` to `destination`; its payload's checksum is wrong. `fragment` is
/// IPv4's field of flags and offset.
Bytes packet(const std::string& source, const std::string& destination, unsigned protocol,
             const Bytes& payload, unsigned fragment = 0, unsigned id = 7) {
  if (source.find(':') == source.npos) {
    return test::summed(bytes({0x45, 0}) + be(static_cast<unsigned>(20 + payload.size())) + be(id) +
                        be(fragment) + bytes({64, protocol, 0, 0}) + raw<AddressV4>(source) +
                        raw<AddressV4>(destination)) +
           payload;
  }
  Bytes body = payload;
  unsigned next = protocol;
  if (fragment != 0) {
    body = bytes({protocol, 0}) + be((fragment & 0x1fff) << 3 | (fragment >> 13 & 1)) + be(0) +
           be(id) + payload;
    next = kProtocolFragment;
  }
  return bytes({0x60, 0, 0, 0}) + be(static_cast<unsigned>(body.size())) + bytes({next, 64}) +
         raw<AddressV6>(source) + raw<AddressV6>(destination) + body;
}
Bytes udp(const std::string& source, const std::string& destination) {
  return packet(source, destination, kProtocolUdp, be(1000) + be(80) + be(8) + be(0));
}
/// Returns an ICMPv6 message of that type.
Bytes message(const std::string& source, const std::string& destination, unsigned type) {
  return packet(source, destination, kProtocolIcmpV6,
                bytes({type, 0, 0, 0, 0, 7, 0, 0}) + test::zeros(16));
}
Bytes frame(const Bytes& ip, const Bytes& to = kUs, const Bytes& tags = {}) {
  const bool v4 = (ip[0] >> 4) == std::byte{4};
  return to + kThem + tags + be(v4 ? 0x0800 : 0x86dd) + ip;
}

class IngressTest : public testing::Test {
 protected:
  IngressTest() { reverse_path(ReversePath::off); }

  /// `passes`: another machine has the virtual addresses, too, behind the second link.
  void reverse_path(ReversePath how, bool has_neighbours = true, bool passes = false) {
    HostConfig config{.links = {{.mac = {{2, 0, 0, 0, 0, 1}}}, {.mac = {{2, 0, 0, 0, 0, 2}}}},
                      .announces = false};
    for (HostLink& link : config.links) {
      link.reverse_path = how;
      link.has_neighbours = has_neighbours;
    }
    const auto v4 = [](const char* text) { return *parse_address<AddressV4>(text); };
    const auto v6 = [](const char* text) { return *parse_address<AddressV6>(text); };
    config.v4.own = {{v4("198.51.100.2"), 24, 0}, {v4("10.0.0.254"), 24, 1}};
    config.v4.virtual_addresses = {v4("203.0.113.10")};
    config.v4.routes = {{v4("192.0.2.0"), 24, 0, v4("198.51.100.1")}};
    config.v6.own = {{v6("2001:db8::2"), 64, 0}, {v6("fd00::fe"), 64, 1}};
    config.v6.virtual_addresses = {v6("2001:db8:1::10")};
    config.v6.routes = {{v6("2001:db8:7::"), 48, 0, v6("2001:db8::1")}};
    config.v4.passes = config.v6.passes = passes;
    if (passes) {
      config.v4.routes.push_back({v4("203.0.113.10"), 32, 1, v4("10.0.0.7")});
      config.v6.routes.push_back({v6("2001:db8:1::10"), 128, 1, v6("fd00::7")});
    }
    // With a served prefix, ingress checks destinations, too.
    config.v4.served = {{AddressV4{}, 0}};
    config.v6.served = {{AddressV6{}, 0}};
    host_ = std::make_unique<Host>(config);
  }

  /// Returns the verdict; with ", unfiled" if the packet's key was removed although the verdict is
  /// no drop.
  std::string of(const Bytes& bytes_of_frame, unsigned link = 0) {
    auto memory = std::make_unique<std::byte[]>(bytes_of_frame.size());
    std::ranges::copy(bytes_of_frame, memory.get());
    auto burst = std::make_unique<Burst>();
    burst->size = 1;
    burst->data[0] = memory.get();
    burst->length[0] = static_cast<std::uint16_t>(bytes_of_frame.size());
    burst->wire_length[0] = burst->length[0];
    parse(*burst, LinkType::ethernet);
    const unsigned before = filed(*burst);
    const Arrival arrival{0, 1, link};
    host_->admit(*burst, {&arrival, 1});
    std::string verdict(to_string(burst->verdict[0]));
    if (is_drop(burst->verdict[0])) {
      EXPECT_EQ(filed(*burst), 0U) << verdict;
    } else if (filed(*burst) < before) {
      verdict += ", unfiled";
    }
    return verdict;
  }

  static unsigned filed(const Burst& burst) {
    return burst.v4.size + burst.v6.size + burst.quoted_v4.size + burst.quoted_v6.size;
  }

  std::unique_ptr<Host> host_;
};

const std::string kV4 = "192.0.2.7";
const std::string kV6 = "2001:db8:7::7";

TEST_F(IngressTest, TakesNoPacketWhoseHeaderIsWrong) {
  const Bytes vlan_0 = bytes({0x81, 0, 0, 0});
  for (const Bytes& tags : {Bytes{}, vlan_0}) {
    for (const char* to : {"10.0.0.7", "203.0.113.10", "10.0.0.254"}) {
      const Bytes good = udp(kV4, to);
      const auto with = [&](unsigned at, unsigned word, bool is_summed) {
        Bytes changed = good;
        std::ranges::copy(be(word), changed.begin() + at);
        if (is_summed) {
          changed[10] = changed[11] = std::byte{0};
          changed = test::summed(changed);
        }
        return frame(changed, kUs, tags);
      };
      EXPECT_EQ(of(with(4, 7, true)), "tracked");
      EXPECT_EQ(of(with(4, 8, false)), "malformed, unfiled")
          << "the checksum is that of another header";
      EXPECT_EQ(of(with(10, 0, false)), "malformed, unfiled");
      EXPECT_EQ(of(with(2, 29, true)), "truncated, unfiled") << "the packet has 28 bytes";
      EXPECT_EQ(of(with(2, 0, true)), "malformed, unfiled");
      EXPECT_EQ(of(frame(good + test::zeros(18), kUs, tags)), "tracked") << "frames are padded";
    }
    Bytes longer = udp(kV6, "fd00::7");
    EXPECT_EQ(of(frame(longer + test::zeros(6), kUs, tags)), "tracked");
    longer[5] = std::byte{9};
    EXPECT_EQ(of(frame(longer, kUs, tags)), "truncated, unfiled") << "the payload has 8 bytes";
  }
}

TEST_F(IngressTest, TakesCapturesAsTheyAre) {
  reverse_path(ReversePath::off, false);
  Bytes ip = udp(kV4, "10.0.0.7");
  ip[10] ^= std::byte{1};
  EXPECT_EQ(of(frame(ip)), "tracked");
  EXPECT_EQ(of(test::cut(frame(ip), 40)), "tracked");
}

TEST_F(IngressTest, TakesFramesForThisStation) {
  for (const Bytes& ip : {udp(kV4, "10.0.0.7"), udp(kV6, "fd00::7")}) {
    EXPECT_EQ(of(frame(ip)), "tracked");
    EXPECT_EQ(of(frame(ip, kOurOther)), "other_station");
    EXPECT_EQ(of(frame(ip, kOurOther), 1), "tracked");
    EXPECT_EQ(of(frame(ip, kThem)), "other_station");
    EXPECT_EQ(of(frame(ip, kAll)), "link_broadcast");
    EXPECT_EQ(of(frame(ip, bytes({1, 0, 0x5e, 0, 0, 5}))), "link_broadcast");
    EXPECT_EQ(of(frame(ip, bytes({0x33, 0x33, 0, 0, 0, 1}))), "link_broadcast");
    EXPECT_EQ(of(test::cut(frame(ip), 20)), "truncated");
    EXPECT_EQ(of(test::cut(frame(ip), 10)), "truncated");
    EXPECT_EQ(of(test::cut(frame(ip, kThem), 20)), "other_station");
  }
  EXPECT_EQ(of(kAll + kThem + be(0x0806) + test::zeros(46)), "not_ip");
  EXPECT_EQ(of(kUs + kThem + be(0x0806) + test::zeros(46)), "not_ip");
  EXPECT_EQ(of(kOurOther + kThem + be(0x0806) + test::zeros(46)), "other_station");
}

TEST_F(IngressTest, TakesNoFrameOfNoLink) {
  const Bytes plain = frame(udp(kV4, "10.0.0.7"));
  const std::vector<Bytes> frames{plain, plain, frame(udp(kV6, "fd00::7")), plain,
                                  kUs + kThem + be(0x0806) + test::zeros(46)};
  auto memory = frames;
  auto burst = std::make_unique<Burst>();
  for (Bytes& one : memory) {
    burst->data[burst->size] = one.data();
    burst->wire_length[burst->size] = burst->length[burst->size] =
        static_cast<std::uint16_t>(one.size());
    ++burst->size;
  }
  parse(*burst, LinkType::ethernet);
  const std::vector<Arrival> arrivals{
      {0, 1, 0}, {.begin = 1, .end = 3, .link = 0, .is_foreign = true}, {3, 4, 0}, {4, 5, 1, true}};
  host_->admit(*burst, arrivals);
  std::vector<std::string> verdicts;
  for (unsigned i = 0; i < burst->size; ++i) verdicts.emplace_back(to_string(burst->verdict[i]));
  EXPECT_EQ(verdicts, (std::vector<std::string>{"tracked", "foreign_vlan", "foreign_vlan",
                                                "tracked", "foreign_vlan"}));
  EXPECT_EQ(burst->v4.size, 2U);
  EXPECT_EQ(burst->v6.size, 0U);
}

TEST_F(IngressTest, TakesNoVlanBut0) {
  const Bytes ip = udp(kV4, "10.0.0.7");
  const auto tagged = [&](std::initializer_list<unsigned> words) {
    Bytes tags;
    for (const unsigned word : words) tags = tags + be(word);
    return of(frame(ip, kUs, tags));
  };
  EXPECT_EQ(tagged({0x8100, 0xa000}), "tracked");
  EXPECT_EQ(tagged({0x88a8, 0}), "tracked");
  EXPECT_EQ(tagged({0x8100, 0, 0x8100, 0x6000}), "tracked");
  EXPECT_EQ(tagged({0x8100, 0, 0x88a8, 0, 0x8100, 0}), "tracked");
  EXPECT_EQ(tagged({0x8100, 100}), "foreign_vlan");
  EXPECT_EQ(tagged({0x88a8, 5, 0x8100, 6}), "foreign_vlan");
  EXPECT_EQ(tagged({0x8100, 0, 0x8100, 100}), "foreign_vlan");
  EXPECT_EQ(tagged({0x8100, 100, 0x8100, 0}), "foreign_vlan");
  EXPECT_EQ(tagged({0x9100, 0}), "foreign_vlan");
  EXPECT_EQ(of(frame(ip, kThem, be(0x8100) + be(0))), "other_station");
  EXPECT_EQ(of(frame(ip, kAll, be(0x8100) + be(0))), "link_broadcast");
  EXPECT_EQ(of(kUs + kThem + be(0x8100) + be(100) + be(0x0806) + test::zeros(46)), "foreign_vlan");
  EXPECT_EQ(of(kUs + kThem + be(0x8100) + be(100)), "foreign_vlan");
}

TEST_F(IngressTest, TakesNothingEncapsulated) {
  const Bytes ip = udp(kV4, "10.0.0.7");
  EXPECT_EQ(of(kUs + kThem + be(0x8847) + test::label(16, true) + ip), "encapsulated");
  EXPECT_EQ(of(kUs + kThem + be(0x8848) + test::label(16, true) + ip), "encapsulated");
  EXPECT_EQ(of(kUs + kThem + be(0x8864) + test::pppoe(be(0x21), ip.size()) + ip), "encapsulated");
  EXPECT_EQ(of(kUs + kThem + be(0x8100) + be(0) + be(0x8847) + test::label(16, true) + ip),
            "encapsulated");
  EXPECT_EQ(of(kUs + kThem + be(static_cast<unsigned>(ip.size() + 8)) + test::snap(0, 0x0800) + ip),
            "encapsulated");
  EXPECT_EQ(of(kUs + kThem + be(0x8864) + bytes({0x11, 9}) + test::zeros(40)), "not_ip");
}

TEST_F(IngressTest, TakesNoSourceThatNobodyHas) {
  for (const char* source : {"127.0.0.1", "127.255.255.255", "0.0.0.0", "224.0.0.5",
                             "239.255.255.255", "255.255.255.255", "198.51.100.2", "10.0.0.254",
                             "203.0.113.10", "198.51.100.255", "10.0.0.255"}) {
    for (const char* destination : {"10.0.0.7", "203.0.113.10", "198.51.100.2"}) {
      EXPECT_EQ(of(frame(udp(source, destination))), "martian_source") << source;
      EXPECT_EQ(of(frame(udp(source, destination), kOurOther), 1), "martian_source") << source;
    }
  }
  for (const char* source : {"0.0.0.1", "169.254.1.1", "240.0.0.1", "255.0.0.1", "203.0.113.11",
                             "10.0.0.0", "128.0.0.1", "100.64.0.1", "192.0.2.1"})
    EXPECT_EQ(of(frame(udp(source, "10.0.0.7"))), "tracked") << source;
  for (const char* source : {"::", "::1", "ff02::5", "ff0e::1", "2001:db8::2", "fd00::fe",
                             "2001:db8:1::10", "fe80::ff:fe00:1"}) {
    for (const char* destination : {"fd00::7", "2001:db8:1::10", "2001:db8::2"})
      EXPECT_EQ(of(frame(udp(source, destination))), "martian_source") << source;
  }
  for (const char* source : {"::2", "::ffff:192.0.2.1", "fec0::1", "2002::1", "64:ff9b::1"})
    EXPECT_EQ(of(frame(udp(source, "fd00::7"))), "tracked") << source;
}

TEST_F(IngressTest, LinkLocalSourcesReachTheHostOnly) {
  const std::string near = "fe80::99";
  EXPECT_EQ(of(frame(udp(near, "fd00::7"))), "martian_source");
  EXPECT_EQ(of(frame(udp(near, "2001:db8:1::10"))), "martian_source");
  EXPECT_EQ(of(frame(message(near, "fd00::7", 128))), "martian_source");
  EXPECT_EQ(of(frame(udp(near, "2001:db8::2"))), "tracked");
  EXPECT_EQ(of(frame(message(near, "2001:db8::2", 128))), "tracked");
  EXPECT_EQ(of(frame(message(near, "fe80::ff:fe00:1", 128))), "tracked");
  // An echo request or a neighbour solicitation to a virtual address is not for a service.
  EXPECT_EQ(of(frame(message(near, "2001:db8:1::10", 128))), "no_service, unfiled");
  EXPECT_EQ(of(frame(message(near, "2001:db8:1::10", 135))), "icmp_control");
  EXPECT_EQ(of(frame(message(near, "2001:db8:1::10", 1))), "martian_source");
}

TEST_F(IngressTest, WhoHasNoAddressYetMayAsk) {
  EXPECT_EQ(of(frame(message("::", "ff02::1:ff00:2", 135), bytes({0x33, 0x33, 0xff, 0, 0, 2}))),
            "icmp_control");
  EXPECT_EQ(of(frame(message("::", "ff02::16", 143), bytes({0x33, 0x33, 0, 0, 0, 0x16}))),
            "icmp_control");
  EXPECT_EQ(of(frame(udp("0.0.0.0", "255.255.255.255"), kAll)), "no_service, unfiled");
  EXPECT_EQ(of(frame(message("::", "2001:db8::2", 135))), "martian_source");
  reverse_path(ReversePath::strict);
  EXPECT_EQ(of(frame(message("::", "ff02::1:ff00:2", 135), bytes({0x33, 0x33, 0xff, 0, 0, 2}))),
            "icmp_control");
}

TEST_F(IngressTest, GroupsAreNoService) {
  for (const char* group : {"224.0.0.5", "232.1.1.1", "255.255.255.255"}) {
    EXPECT_EQ(of(frame(udp(kV4, group))), "no_service, unfiled") << group;
    EXPECT_EQ(of(frame(udp(kV4, group), kAll)), "no_service, unfiled") << group;
  }
  // Directed broadcast addresses are found here in broadcast frames only; in a frame to this
  // station they are found when the packet is routed.
  for (const char* network : {"198.51.100.255", "10.0.0.255"})
    EXPECT_EQ(of(frame(udp(kV4, network), kAll)), "no_service, unfiled") << network;
  EXPECT_EQ(of(frame(udp(kV6, "ff02::5"), bytes({0x33, 0x33, 0, 0, 0, 5}))), "no_service, unfiled");
  EXPECT_EQ(of(frame(udp("127.0.0.1", "224.0.0.5"))), "martian_source");
}

TEST_F(IngressTest, SomeDestinationsAreNobodys) {
  for (const char* destination : {"0.0.0.0", "127.0.0.1", "127.255.255.255"})
    EXPECT_EQ(of(frame(udp(kV4, destination))), "unroutable") << destination;
  for (const char* destination : {"0.0.0.1", "169.254.1.1", "240.0.0.1", "255.255.255.254"})
    EXPECT_EQ(of(frame(udp(kV4, destination))), "tracked") << destination;
  for (const char* destination : {"::", "::1", "fe80::99"})
    EXPECT_EQ(of(frame(udp(kV6, destination))), "unroutable") << destination;
  for (const char* destination : {"::2", "::ffff:127.0.0.1", "fec0::1"})
    EXPECT_EQ(of(frame(udp(kV6, destination))), "tracked") << destination;
}

TEST_F(IngressTest, ReversePath) {
  const auto ask = [this](const char* source, unsigned link) {
    const bool v6 = std::string(source).find(':') != std::string::npos;
    return of(frame(udp(source, v6 ? "fd00::7" : "10.0.0.7"), link == 0 ? kUs : kOurOther), link);
  };
  const std::vector<const char*> outside{"198.51.100.9", "192.0.2.7", "2001:db8::9", kV6.c_str()};
  for (const auto how : {ReversePath::off, ReversePath::loose, ReversePath::strict}) {
    reverse_path(how);
    for (const char* source : outside) {
      EXPECT_EQ(ask(source, 0), "tracked");
      EXPECT_EQ(ask(source, 1), how == ReversePath::strict ? "reverse_path" : "tracked");
    }
    for (const char* source : {"9.9.9.9", "2620::1"})
      EXPECT_EQ(ask(source, 0), how == ReversePath::off ? "tracked" : "reverse_path");
    EXPECT_EQ(ask("127.0.0.1", 0), "martian_source");
    EXPECT_EQ(of(frame(message("fe80::99", "2001:db8::2", 128))), "tracked");
  }
}

TEST_F(IngressTest, AMachineToWhichPacketsPassAnswersByTheVirtualAddress) {
  const auto from_there = [this](const char* source, const std::string& destination,
                                 unsigned link) {
    return of(frame(udp(source, destination), link == 0 ? kUs : kOurOther), link);
  };
  for (const auto how : {ReversePath::off, ReversePath::loose, ReversePath::strict}) {
    reverse_path(how, true, true);
    const std::string elsewhere = how == ReversePath::strict ? "reverse_path" : "tracked";
    EXPECT_EQ(from_there("203.0.113.10", kV4, 1), "tracked");
    EXPECT_EQ(from_there("2001:db8:1::10", kV6, 1), "tracked");
    EXPECT_EQ(from_there("203.0.113.10", kV4, 0), elsewhere);
    EXPECT_EQ(from_there("2001:db8:1::10", kV6, 0), elsewhere);
    EXPECT_EQ(from_there("203.0.113.10", "203.0.113.10", 1), "martian_source");
  }
}

TEST_F(IngressTest, PortsWithoutNeighboursHaveNoMacs) {
  reverse_path(ReversePath::off, false);
  const Bytes ip = udp(kV4, "10.0.0.7");
  EXPECT_EQ(of(frame(ip, kThem)), "tracked");
  EXPECT_EQ(of(frame(ip, kAll)), "tracked");
  EXPECT_EQ(of(frame(ip, kThem, be(0x8100) + be(100))), "tracked");
  EXPECT_EQ(of(frame(udp("203.0.113.10", "10.0.0.7"), kThem)), "martian_source");
}

TEST_F(IngressTest, FragmentsComeInAsOthersDo) {
  for (const unsigned field : {0x2000U, 0x2003U, 3U}) {
    const std::string right = (field & 0x1fff) == 0 ? "tracked" : "fragment";
    const Bytes body = be(1000) + be(80) + be(8) + be(0) + test::zeros(8);
    EXPECT_EQ(of(frame(packet(kV4, "10.0.0.7", kProtocolUdp, body, field))), right);
    EXPECT_EQ(of(frame(packet(kV6, "fd00::7", kProtocolUdp, body, field))), right);
    EXPECT_EQ(of(frame(packet("127.0.0.1", "10.0.0.7", kProtocolUdp, body, field))),
              "martian_source");
    EXPECT_EQ(of(frame(packet("::1", "fd00::7", kProtocolUdp, body, field))), "martian_source");
    EXPECT_EQ(of(frame(packet(kV6, "fd00::7", kProtocolUdp, body, field), kThem)), "other_station");
  }
}

// --- parts of the implementation

TEST(KnownAddresses, ContainsWhatItWasGiven) {
  std::vector<AddressV4> all;
  for (unsigned i = 0; i < 10'000; ++i)
    all.push_back({{10, static_cast<std::uint8_t>(i % 7), static_cast<std::uint8_t>(i / 256),
                    static_cast<std::uint8_t>(i)}});
  const KnownAddresses<AddressV4> known(all);
  for (const AddressV4& address : all) EXPECT_TRUE(known.contains(address));
  unsigned maybe = 0;
  for (unsigned i = 0; i < 10'000; ++i) {
    const AddressV4 other{
        {11, 3, static_cast<std::uint8_t>(i / 256), static_cast<std::uint8_t>(i)}};
    EXPECT_FALSE(known.contains(other));
    maybe += known.may_contain(other);
  }
  EXPECT_LT(maybe, 10'000U / 10);
  EXPECT_FALSE(KnownAddresses<AddressV6>({}).contains(AddressV6{}));
}

TEST(AnsweredPings, AreRememberedForAWhile) {
  AnsweredPings<AddressV4> pings;
  const Datagram<AddressV4> one{.source = {{10, 0, 0, 1}}, .destination = {{10, 0, 0, 2}}, .id = 7};
  Datagram<AddressV4> other = one;
  other.id = 8;
  EXPECT_FALSE(pings.contains({}, Tick{5}));
  EXPECT_FALSE(pings.contains(one, Tick{5}));
  pings.note(one, Tick{5});
  EXPECT_TRUE(pings.contains(one, Tick{30'005}));
  EXPECT_FALSE(pings.contains(one, Tick{30'006}));
  EXPECT_FALSE(pings.contains(other, Tick{5}));
  EXPECT_FALSE(pings.contains(one, Tick{5 + (std::uint32_t{1} << 31)}));
}

TEST(Notices, TheirHeadersAreFoundBehindPriorities) {
  const Bytes ip = message("fe80::99", "ff02::1", 136);
  for (const Bytes& tags :
       {Bytes{}, be(0x8100) + be(0xa000), be(0x88a8) + be(0) + be(0x8100) + be(0)}) {
    const Bytes bytes_of_frame = frame(ip, bytes({0x33, 0x33, 0, 0, 0, 1}), tags);
    const auto parsed = test::parse(LinkType::ethernet, bytes_of_frame);
    const auto found = headers_of_discovery(bytes_of_frame);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->l3, parsed.headers.l3);
    EXPECT_EQ(found->l4, parsed.headers.l4);
    EXPECT_EQ(found->l4_end, parsed.headers.l4_end);
  }
  const Bytes of_a_vlan = frame(ip, bytes({0x33, 0x33, 0, 0, 0, 1}), be(0x8100) + be(100));
  EXPECT_FALSE(headers_of_discovery(of_a_vlan));
}

}  // namespace
}  // namespace millrace
