// Tests a host by scenarios, in the language of host_scenario.h.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "host/host_scenario.h"

namespace millrace {
namespace {

template <class A>
class HostTest : public test::HostScenario<A> {};

using Families = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(HostTest, Families, );

TYPED_TEST(HostTest, NextHopsAreAskedForAndKept) {
  this->play(R"(
    begin
    - 0 to all: out asks gw
    - 1 to all: in asks b1
    0 gw answers
    - consumed
    1 b1 answers
    - consumed
    0 c > b1
    - 1 to b1: c > b1 hops=63
    - no_service
    1 b1 > c
    - 0 to gw: b1 > c hops=63
    - no_service
    +50000
    1 b1 > c
    - 0 to gw: b1 > c hops=63
    - no_service
    +4900
    +200
    - 0 to gw: out asks gw
    0 gw answers
    - consumed
    +5000)");
}

TYPED_TEST(HostTest, PacketsWaitForWhoIsAsked) {
  this->play(R"(
    0 c > b2
    - 1 to all: in asks b2
    - held
    0 n > b2
    - held
    +1000
    - 1 to all: in asks b2
    1 b2 answers
    - 1 to b2: c > b2 hops=63
    - 1 to b2: n > b2 hops=63
    - consumed)");
}

// The customer of a NAT, say, whose packet has a public source by now.
TYPED_TEST(HostTest, AnErrorToAnAddressOfTheHostComesIn) {
  this->play(R"(
    0 vip > b1 hops=1
    - comes in: out > vip hop limit (vip > b1)
    - hop_limit)");
}

TYPED_TEST(HostTest, WhatAFunctionSendsByANextHopGoesThere) {
  this->play(R"(
    begin
    - 0 to all: out asks gw
    - 1 to all: in asks b1
    1 b1 answers
    - consumed
    0 c > vip by=b1
    - 1 to b1: c > vip hops=63
    - tracked
    0 c > vip by=b1 hops=1
    - hop_limit
    0 n > vip by=c
    - 0 to all: out asks n
    - no_route)");
}

TYPED_TEST(HostTest, TheKernelGetsWhatIsForTheHostItself) {
  this->have_kernel(10);
  this->play(R"(
    0 c > out
    - 0 to kernel
    - consumed
    0 c pings out
    - 0 to kernel
    - consumed
    0 c > in
    - 0 to kernel
    - consumed
    0 n > group
    - 0 to kernel
    - consumed
    0 c > out served
    - not_ours
    1 b1 pings in
    - 1 to all: in asks b1
    - consumed)");
}

TYPED_TEST(HostTest, TheKernelAnswersForItsAddresses) {
  this->have_kernel(10);
  this->play(R"(
    0 gw asks out
    - 0 to kernel
    - consumed
    0 gw asks vip
    - 0 to gw: vip answers gw
    - consumed
    0 gw answers
    - 0 to kernel
    - consumed
    1 b1 asks in
    - 1 to b1: in answers b1
    - consumed)");
}

TYPED_TEST(HostTest, TheKernelGetsNoMoreThanItHasRoomFor) {
  this->have_kernel(1);
  this->play(R"(
    0 c > out
    - 0 to kernel
    - consumed
    0 c > out
    - kernel_full)");
}

TYPED_TEST(HostTest, WhoDoesNotAnswerIsGivenUp) {
  this->play(R"(
    begin
    - 0 to all: out asks gw
    - 1 to all: in asks b1
    0 gw answers
    - consumed
    1 b1 answers
    - consumed
    0 c > b2
    - 1 to all: in asks b2
    - held
    0 c > b2 served
    - held
    +1000
    - 1 to all: in asks b2
    +1000
    - 1 to all: in asks b2
    +1000
    - 0 to gw: out > c no host (c > b2)
    - dropped
    - dropped
    0 c > b2
    - 0 to gw: out > c no host (c > b2)
    - unresolved
    0 c > b2 served
    - unresolved
    +1100
    0 c > b2
    - 1 to all: in asks b2
    - held
    1 b2 answers
    - 1 to b2: c > b2 hops=63
    - consumed)");
}

TYPED_TEST(HostTest, OneThatFallsSilentIsAskedAloneThenGivenUp) {
  this->play(R"(
    1 b2 asks in
    - 1 to b2: in answers b2
    - consumed
    0 n > b2
    - 1 to b2: n > b2 hops=63
    - no_service
    +5000
    - 1 to b2: in asks b2
    +1000
    - 1 to b2: in asks b2
    +1000
    - 1 to b2: in asks b2
    0 n > b2
    - 1 to b2: n > b2 hops=63
    - no_service
    +1000
    0 n asks out
    - 0 to n: out answers n
    - consumed
    0 n > b2
    - 0 to n: out > n no host (n > b2)
    - unresolved)");
}

TYPED_TEST(HostTest, ItAnswersForItsOwnAddressesOnTheirLinksAndForVirtualOnesOnAll) {
  this->play(R"(
    0 n asks out
    - 0 to n: out answers n
    - consumed
    0 n asks vip
    - 0 to n: vip answers n
    - consumed
    1 b1 asks vip
    - 1 to b1: vip answers b1
    - consumed
    0 n asks in
    - consumed
    0 n asks c
    - consumed
    0 none asks out
    - 0 to all: out tells
    - consumed
    0 n asks out tagged
    - 0 to n: out answers n
    - consumed)");
}

TYPED_TEST(HostTest, EchoIsAnsweredWhateverForbidsForwarding) {
  this->play(R"(
    0 n asks out
    - 0 to n: out answers n
    - consumed
    0 n pings out
    - 0 to n: out > n echo
    - consumed
    0 n pings vip hops=1
    - 0 to n: vip > n echo
    - consumed
    0 n pings in dropped
    - 0 to n: in > n echo
    - consumed
    0 c pings vip
    - 0 to all: out asks gw
    - consumed
    0 gw answers
    - 0 to gw: vip > c echo
    - consumed)");
}

TYPED_TEST(HostTest, ItSaysWhyAPacketGoesNoFurther) {
  this->play(R"(
    0 n asks out
    - 0 to n: out answers n
    - consumed
    0 n > b1 hops=1
    - 0 to n: out > n hop limit (n > b1)
    - hop_limit
    0 n > b1 served hops=1
    - 0 to n: out > n hop limit (n > vip)
    - hop_limit
    0 n > b1 bytes=1501
    - 0 to n: out > n too big 1500 (n > b1)
    - too_big
    0 n > b1 served bytes=3000
    - 0 to n: out > n too big 1500 (n > vip)
    - too_big
    0 n > far
    - 0 to n: out > n no route (n > far)
    - no_route
    0 n > out
    - 0 to n: out > n no port (n > out)
    - not_ours
    0 n > group
    - not_ours
    0 none > b1 hops=1
    - hop_limit)");
}

// Errors to a client or backend are sent on; errors to the host itself end here. None is answered.
TYPED_TEST(HostTest, IcmpErrorsAreForwardedAndNeverAnswered) {
  this->play(R"(
    0 n asks out
    - 0 to n: out answers n
    - consumed
    1 b1 asks in
    - 1 to b1: in answers b1
    - consumed
    0 n refuses vip
    - not_ours
    0 n refuses vip hops=1
    - not_ours
    0 n refuses out
    - not_ours
    0 n refuses b1
    - 1 to b1: n > b1 no port (b1 > n)
    - icmp_error
    0 n refuses b1 dropped
    - icmp_error
    0 n refuses b1 served
    - 1 to b1: n > b1 no port (b1 > n)
    - related
    0 n refuses b1 served hops=1
    - hop_limit
    0 n refuses far served
    - no_route
    0 n refuses b2 served
    - 1 to all: in asks b2
    - held
    1 b2 tells
    - 1 to b2: n > b2 no port (b2 > n)
    - consumed)");
}

TYPED_TEST(HostTest, ANeighbourThatMovesIsFollowed) {
  this->play(R"(
    1 b2 asks in
    - 1 to b2: in answers b2
    - consumed
    1 b1 tells
    - consumed
    0 n > b1
    - 1 to all: in asks b1
    - held
    1 b1 tells
    - 1 to b1: n > b1 hops=63
    - consumed)");
}

TYPED_TEST(HostTest, APermanentNeighbourIsNotAskedForAndStays) {
  this->make({.announces = false}, "b1");
  this->play(R"(
    begin
    - 0 to all: out asks gw
    0 gw answers
    - consumed
    1 n > b1
    - 1 to far: n > b1 hops=63
    - no_service
    1 b1 tells
    - consumed
    1 b1 answers
    - consumed
    +90000
    1 b1 asks in
    - 1 to b1: in answers b1
    - consumed
    1 n > b1
    - 1 to far: n > b1 hops=63
    - no_service
    +10000)");
}

TYPED_TEST(HostTest, NobodyWaitsInAQueueWithoutEnd) {
  std::string scenario = "0 n > b2\n- 1 to all: in asks b2\n- held\n";
  for (unsigned i = 1; i < HostCommon::kMaxHeldEach; ++i) scenario += "0 n > b2\n- held\n";
  scenario += "0 n > b2\n- 0 to all: out asks n\n- unresolved\n";
  scenario += "1 b2 answers\n";
  for (unsigned i = 0; i < HostCommon::kMaxHeldEach; ++i) scenario += "- 1 to b2: n > b2 hops=63\n";
  this->play(scenario + "- consumed\n");
}

TYPED_TEST(HostTest, ItAnnouncesItself) {
  this->make({.announces = true});
  this->play(TypeParam::kBytes == 4 ? R"(
    begin
    - 0 to all: out tells
    - 1 to all: in tells
    - 0 to all: out asks gw
    - 1 to all: in asks b1)"
                                    : R"(
    begin
    - 0 to all: out tells
    - 1 to all: in tells
    - 0 to all: fe80::ff:fe00:0 tells
    - 1 to all: fe80::ff:fe00:1 tells
    - 0 to all: out asks gw
    - 1 to all: in asks b1)");
}

TYPED_TEST(HostTest, NotesWhoElseAnswersForAnAddress) {
  this->virtual_ = "n";
  this->make({.announces = true});
  this->play(TypeParam::kBytes == 4 ? R"(
    begin
    - 0 to all: out tells
    - 1 to all: in tells
    - 0 to all: none asks n
    - 0 to all: n tells
    - 0 to all: out asks gw
    - 1 to all: in asks b1
    1 n asks n
    - consumed)"
                                    : R"(
    begin
    - 0 to all: out tells
    - 1 to all: in tells
    - 0 to all: fe80::ff:fe00:0 tells
    - 1 to all: fe80::ff:fe00:1 tells
    - 0 to all: none asks n
    - 0 to all: n tells
    - 0 to all: out asks gw
    - 1 to all: in asks b1
    1 n tells
    - consumed)");
  this->play(R"(
    0 n answers
    - consumed
    0 n answers
    - consumed
    0 gw answers
    - consumed)");
  const auto rivals = this->host().rivals();
  ASSERT_EQ(rivals.size(), 2U);
  EXPECT_EQ(rivals[0].link, 1U);
  EXPECT_EQ(rivals[1].link, 0U);
  EXPECT_EQ(rivals[1].address, AnyAddress(this->address("n")));
  EXPECT_EQ(rivals[1].mac, this->mac_of("n"));
  EXPECT_FALSE(rivals[1].neighbour.has_value()) << "no other address of that station is known";
}

TYPED_TEST(HostTest, TellsWhoDoesNotAnswer) {
  const auto silent = [this] {
    std::string names;
    for (const auto& [link, address] : this->host().silent())
      names += std::to_string(link) + " " + this->name_of(std::get<TypeParam>(address)) + "\n";
    return names;
  };
  const auto before = [this](const std::string& name) {
    const WayTo is = this->host().way_to(this->address(name));
    EXPECT_EQ(is.kind, WayTo::Kind::next_hop);
    return is.is_silent ? this->name_of(std::get<TypeParam>(is.next_hop)) : "nobody";
  };
  std::string scenario = "begin\n- 0 to all: out asks gw\n- 1 to all: in asks b1\n";
  this->play(scenario + "1 b1 answers\n- consumed\n0 n > b2\n- 1 to all: in asks b2\n- held\n");
  EXPECT_EQ(silent(), "") << "gw has been asked only once";
  this->play(R"(
    +1000
    - 0 to all: out asks gw
    - 1 to all: in asks b2
    +1000
    - 0 to all: out asks gw
    - 1 to all: in asks b2
    +1100
    - 0 to all: out asks n
    - dropped)");
  EXPECT_EQ(silent(), "0 gw\n") << "the configuration does not need b2";
  EXPECT_EQ(before("c"), "gw");
  EXPECT_EQ(before("b1"), "nobody");
  EXPECT_EQ(this->host().way_to(this->address("out")).kind, WayTo::Kind::here);
  EXPECT_EQ(this->host().way_to(this->address("vip")).kind, WayTo::Kind::here);
  EXPECT_EQ(this->host().way_to(this->address("far")).kind, WayTo::Kind::nowhere);
  EXPECT_EQ(this->host().way_to(this->address("group")).kind, WayTo::Kind::group);
  this->play("+1000\n- 0 to all: out asks gw\n- 0 to all: out asks n\n");
  EXPECT_EQ(silent(), "0 gw\n") << "gw is asked again, and has not answered yet";
  this->play("0 gw answers\n- consumed\n");
  EXPECT_EQ(silent(), "");
}

using HostTestOfIpv6 = HostTest<AddressV6>;
TEST_F(HostTestOfIpv6, DiscoveryStaysOnItsLink) {
  play(R"(
    1 b1 asks in
    - 1 to b1: in answers b1
    - consumed
    0 n tells-only b1
    - not_ours)");
}

TYPED_TEST(HostTest, AnyBytesMayArrive) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  this->attack(seed, 20'000);
}

TYPED_TEST(HostTest, WhatTheLineDropsStaysDropped) {
  this->play(R"(
    0 c > b1 dropped
    - no_service
    0 c > far dropped
    - no_service)");
}

TYPED_TEST(HostTest, NoMoreErrorsThanAreAllowed) {
  this->make();
  std::string scenario = "0 n asks out\n- 0 to n: out answers n\n- consumed\n";
  for (unsigned i = 0; i < Allowance::kAtOnce; ++i)
    scenario += "0 n > far\n- 0 to n: out > n no route (n > far)\n- no_route\n";
  scenario += "0 n > far\n- no_route\n+1\n";
  scenario +=
      "0 n > far\n- 0 to n: out > n no route (n > far)\n- no_route\n0 n > far\n- no_route\n";
  this->play(scenario);
}

}  // namespace
}  // namespace millrace
