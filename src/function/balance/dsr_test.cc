// Direct server return: packets leave unchanged, for the backend as next hop.
#include <gtest/gtest.h>

#include <string>

#include "function/balance/test_line.h"

namespace millrace {
namespace {

template <class K>
class DsrTest : public TestServices<K> {
 public:
  using Line = BalanceLine<K>;
  using Spec = typename TestServices<K>::Spec;
  using Sent = typename Line::Sent;

  static Spec service(const std::string& backends, Forward forward = Forward::dsr) {
    Spec spec{
        .address = Line::host('v'), .port = 80, .forward = forward, .scheduler = "round-robin"};
    for (const char name : backends) spec.backends.push_back({.address = Line::host(name)});
    return spec;
  }
  static void expect(const Sent& sent, Verdict verdict, const std::string& from,
                     const std::string& to, const std::string& by) {
    EXPECT_EQ(sent.verdict, verdict);
    EXPECT_EQ(sent.from, from);
    EXPECT_EQ(sent.to, to);
    EXPECT_EQ(sent.by, by);
  }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(DsrTest, Families);

TYPED_TEST(DsrTest, PacketsLeaveAsTheyCame) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("ab")}));
  EXPECT_FALSE(line.function().part().replies);
  for (const auto protocol : {T::Line::kTcp, T::Line::kUdp}) {
    for (const std::string client : {"x:1", "x:2", "x:1", "x:2"})
      T::expect(line.send({client, "v:80", protocol}), Verdict::tracked, client, "v:80",
                client == "x:1" ? "a" : "b");
  }
  const auto statistics = line.balance().statistics();
  EXPECT_EQ(statistics[0].forward, Forward::dsr);
  EXPECT_EQ(statistics[0].backends[0].packets, 4U);
  EXPECT_EQ(statistics[0].backends[1].connections, 2U);
}

TYPED_TEST(DsrTest, WhatServersAnswerConcernsNobody) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a")}));
  line.send({"x:1", "v:80"});
  T::expect(line.send({"v:80", "x:1"}), Verdict::no_service, "v:80", "x:1", "");
  T::expect(line.send({"a:80", "x:1"}), Verdict::no_service, "a:80", "x:1", "");
}

TYPED_TEST(DsrTest, WithoutAnEntryGoWhereMaglevSays) {
  using T = TestFixture;
  auto config = T::config({T::service("abcd")});
  typename T::Line full(config);
  full.full = true;
  config.stateful = false;
  typename T::Line stateless(config);
  for (int port = 1; port < 40; ++port) {
    const std::string client = "x:" + std::to_string(port);
    const auto sent = full.send({client, "v:80"});
    T::expect(sent, Verdict::stateless, client, "v:80", sent.by);
    EXPECT_NE(sent.by, "");
    T::expect(stateless.send({client, "v:80"}), Verdict::stateless, client, "v:80", sent.by);
  }
}

TYPED_TEST(DsrTest, BesideServicesWhoseRepliesComeBack) {
  using T = TestFixture;
  auto nat = T::service("a", Forward::nat);
  nat.port = 81;
  typename T::Line line(T::config({T::service("a"), nat}));
  T::expect(line.send({"x:1", "v:80"}), Verdict::tracked, "x:1", "v:80", "a");
  T::expect(line.send({"x:1", "v:81"}), Verdict::tracked, "x:1", "a:81", "");
  T::expect(line.send({"a:81", "x:1"}), Verdict::tracked, "v:81", "x:1", "");
  // A direct backend sends replies from the service's address, so this packet is no reply.
  T::expect(line.send({"a:80", "x:1"}), Verdict::no_service, "a:80", "x:1", "");
}

TYPED_TEST(DsrTest, ConnectionsKeepTheWayTheyBeganWith) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a", Forward::nat)}));
  line.send({"x:1", "v:80"});
  line.update(T::only({T::service("a")}));
  line.send({"x:2", "v:80"});
  for (int again = 0; again < 2; ++again) {
    T::expect(line.send({"x:1", "v:80"}), Verdict::tracked, "x:1", "a:80", "");
    T::expect(line.send({"a:80", "x:1"}), Verdict::tracked, "v:80", "x:1", "");
    T::expect(line.send({"x:2", "v:80"}), Verdict::tracked, "x:2", "v:80", "a");
    line.update(T::only({T::service("a", Forward::nat)}));
  }
  T::expect(line.send({"x:3", "v:80"}), Verdict::tracked, "x:3", "a:80", "");
  EXPECT_EQ(line.balance().statistics()[0].backends.size(), 2U);
}

}  // namespace
}  // namespace millrace
