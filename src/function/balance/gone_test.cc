// Tests connections to a backend that is gone, and a backend's packets that belong to no
// connection.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "core/protocol.h"
#include "function/balance/test_line.h"

namespace millrace {
namespace {

template <class K>
class GoneTest : public TestServices<K> {
 public:
  using Line = BalanceLine<K>;
  using Packet = typename Line::Packet;
  using Spec = typename TestServices<K>::Spec;

  static Spec service(const std::string& backends) {
    Spec spec{.address = Line::host('v'), .port = 80, .scheduler = "round-robin"};
    for (const char name : backends) spec.backends.push_back({.address = Line::host(name)});
    return spec;
  }
  static Packet tcp(const std::string& from) { return {from, "v:80"}; }
  static Packet udp(const std::string& from) { return {from, "v:80", Line::kUdp}; }
  static Packet sctp(const std::string& from) { return {from, "v:80", kProtocolSctp}; }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(GoneTest, Families);

TYPED_TEST(GoneTest, WhatNobodyAnsweredAndWhatNeverEndsMoves) {
  const auto tcp = TestFixture::tcp("x:1");
  const auto udp = TestFixture::udp("x:2");
  for (const bool is_removed : {true, false}) {
    for (const bool moves : {true, false}) {
      auto spec = TestFixture::service("ab");
      spec.move_udp = moves;
      typename TestFixture::Line line(TestFixture::config({spec}));
      for (const auto& packet : {tcp, udp}) line.send(packet);
      for (const auto& packet : {tcp, udp}) EXPECT_EQ(line.fate(packet, false), Fate::stays);
      if (is_removed) {
        auto other = TestFixture::service("cd");
        other.move_udp = moves;
        line.update(TestFixture::only({other}));
      } else {
        for (auto& backend : spec.backends) backend.is_healthy = false;
        line.update(TestFixture::only({spec}));
      }
      for (const auto& packet : {tcp, udp}) EXPECT_EQ(line.fate(packet, false), Fate::begins_anew);
      EXPECT_EQ(line.fate(tcp, true), Fate::stays);
      EXPECT_EQ(line.fate(udp, true), moves ? Fate::begins_anew : Fate::stays);
    }
  }
}

TYPED_TEST(GoneTest, EstablishedTcpIsResetWhereItsServiceSaysSo) {
  auto spec = TestFixture::service("a");
  spec.on_unhealthy = OnUnhealthy::reset;
  typename TestFixture::Line line(TestFixture::config({spec}));
  const auto tcp = TestFixture::tcp("x:1");
  line.send(tcp);
  spec.backends[0].weight = 0;
  line.update(TestFixture::only({spec}));
  EXPECT_EQ(line.fate(tcp, true), Fate::stays) << "a drained backend is not gone";
  EXPECT_EQ(line.fate(tcp, false), Fate::stays);
  spec.backends[0].is_healthy = false;
  line.update(TestFixture::only({spec}));
  EXPECT_EQ(line.fate(tcp, true), Fate::reset);
}

TYPED_TEST(GoneTest, AnSctpAssociationIsNotReset) {
  auto spec = TestFixture::service("a");
  spec.on_unhealthy = OnUnhealthy::reset;
  typename TestFixture::Line line(TestFixture::config({spec}));
  const auto sctp = TestFixture::sctp("x:1");
  line.send(sctp);
  spec.backends[0].is_healthy = false;
  line.update(TestFixture::only({spec}));
  EXPECT_EQ(line.fate(sctp, true), Fate::stays) << "only TCP connections are reset";
  EXPECT_EQ(line.fate(sctp, false), Fate::begins_anew);
}

TYPED_TEST(GoneTest, AnUpdateTellsWhetherConnectionsHaveLostTheirBackend) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("ab")}));
  line.send(TestFixture::tcp("x:1"));  // goes to backend a
  const auto loses = [&line](const typename TestFixture::Spec& spec) {
    const auto review = line.try_update(TestFixture::only({spec}));
    return review.has_value() && *review == Review::all;
  };
  EXPECT_FALSE(loses(TestFixture::service("ac"))) << "b has no connection";
  EXPECT_TRUE(loses(TestFixture::service("c")));
  EXPECT_FALSE(loses(TestFixture::service("cd")))
      << "the previous update has reported this connection";
  auto unhealthy = TestFixture::service("ac");
  EXPECT_FALSE(loses(unhealthy)) << "a came back";
  unhealthy.backends[0].is_healthy = false;
  EXPECT_TRUE(loses(unhealthy));
}

// In a chain, connections to no service may begin anew to a service that is added.
TYPED_TEST(GoneTest, AnUpdateTellsWhetherAServiceHasCome) {
  auto other = TestFixture::service("c");
  other.port = 8080;
  const auto one = TestFixture::service("ab");
  typename TestFixture::Line line(TestFixture::config({one}));
  line.send(TestFixture::tcp("x:1"));
  const auto review = [&line](std::vector<typename TestFixture::Spec> specs) {
    const auto is = line.try_update(TestFixture::only(std::move(specs)));
    return is.has_value() ? *is : Review::all;
  };
  EXPECT_EQ(review({one}), Review::none);
  EXPECT_EQ(review({TestFixture::service("abd")}), Review::none);
  EXPECT_EQ(review({other, TestFixture::service("a")}), Review::unconcerned);
  EXPECT_EQ(review({one, other}), Review::none) << "in another order";
  EXPECT_EQ(review({one}), Review::none) << "a service that only drains takes no connections";
  EXPECT_EQ(review({one, other}), Review::unconcerned) << "the service is added again";
}

TYPED_TEST(GoneTest, ABackendsStrayPacketsStay) {
  auto spec = TestFixture::service("a");
  typename TestFixture::Line line(TestFixture::config({spec}));
  const auto verdict = [&line](const std::string& from, std::uint8_t flags) {
    return line.send({from, "x:1", TestFixture::Line::kTcp, flags}).verdict;
  };
  for (const std::uint8_t flags : {TestFixture::Line::kSyn, TestFixture::Line::kAck}) {
    EXPECT_EQ(verdict("a:81", flags), Verdict::no_service)
        << "81 is not the port at which a serves";
    EXPECT_EQ(verdict("b:80", flags), Verdict::no_service) << "b is no backend";
  }
  EXPECT_EQ(verdict("a:80", TestFixture::Line::kSyn), Verdict::stray_reply);
  EXPECT_EQ(verdict("a:80", TestFixture::Line::kAck), Verdict::stateless)
      << "may be a reply to a packet that was served without an entry";
  spec.direct = true;
  line.update(TestFixture::only({spec}));
  EXPECT_EQ(verdict("a:80", TestFixture::Line::kSyn), Verdict::no_service);
}

TYPED_TEST(GoneTest, ABackendThatDrainsIsStillOne) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("a")}));
  line.send(TestFixture::tcp("x:1"));
  line.update(TestFixture::only({TestFixture::service("b")}));
  EXPECT_EQ(line.send({"a:80", "y:1", TestFixture::Line::kTcp, TestFixture::Line::kAck}).verdict,
            Verdict::stray_reply);
  EXPECT_EQ(line.send({"a:80", "x:1", TestFixture::Line::kTcp, TestFixture::Line::kAck}).verdict,
            Verdict::tracked);
}

}  // namespace
}  // namespace millrace
