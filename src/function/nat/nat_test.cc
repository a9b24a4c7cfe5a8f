// Tests NAT on a line of its own: which public end a session gets, which packets from outside pass,
// and how its packets leave. Hosts a to o are inside, t to z are outside, p to s are public.
#include "function/nat/nat.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "function/command_done.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

constexpr std::array kDependences{"endpoint-independent", "address-dependent",
                                  "address-and-port-dependent"};

TEST_F(NatTest, TranslatesBothDirections) {
  use();
  for (const std::uint8_t protocol : {kTcp, kUdp, kProtocolUdpLite, kProtocolDccp}) {
    const Sent out = send("a:5000", "z:80", protocol);
    EXPECT_EQ(out.verdict, Verdict::tracked);
    EXPECT_EQ(out.to, "z:80");
    EXPECT_TRUE(out.from[0] >= 'p' && out.from[0] <= 's') << out.from;
    const Sent back = send("z:80", out.from, protocol, Line::kSyn | Line::kAck);
    EXPECT_EQ(back.verdict, Verdict::tracked);
    EXPECT_EQ(back.from, "z:80");
    EXPECT_EQ(back.to, "a:5000");
  }
  EXPECT_EQ(count("sessions"), 4U);
  EXPECT_EQ(count("customers"), 1U);
}

TEST_F(NatTest, Rfc4787Req1TwoRemotesSeeOnePublicEnd) {
  use();
  const std::string end = public_end("a:5000", "z:80");
  EXPECT_EQ(public_end("a:5000", "y:80"), end);
  EXPECT_EQ(public_end("a:5000", "z:81"), end);
  EXPECT_NE(public_end("a:5001", "z:80"), end);
  EXPECT_EQ(count("mappings"), 2U);
}

TEST_F(NatTest, MapsAsThePoolSays) {
  for (std::size_t mapping = 0; mapping < kDependences.size(); ++mapping) {
    use("mapping = \"" + std::string(kDependences[mapping]) + "\"");
    const std::string end = public_end("a:5000", "z:80");
    EXPECT_EQ(public_end("a:5000", "z:81") == end, mapping < 2) << kDependences[mapping];
    EXPECT_EQ(public_end("a:5000", "y:80") == end, mapping < 1) << kDependences[mapping];
  }
}

TEST_F(NatTest, Rfc4787Req6OnlyPacketsFromInsideAreActivity) {
  use("filtering = \"endpoint-independent\"");
  const auto is_idle = [this] { return line_->burst().v4.idle != 0; };
  const std::string end = public_end("a:5000", "z:80");
  EXPECT_FALSE(is_idle());
  send("z:80", end);
  EXPECT_TRUE(is_idle());
  send("y:1", end);
  EXPECT_TRUE(is_idle()) << "a session from outside";
  send("a:5000", "y:1");
  EXPECT_FALSE(is_idle());
  send("b:1", end);
  EXPECT_TRUE(is_idle()) << "to its receiver, a hairpin comes from outside";
}

TEST_F(NatTest, Rfc4787Req8FiltersAsThePoolSays) {
  for (const std::string mapping : kDependences) {
    for (std::size_t filtering = 0; filtering < kDependences.size(); ++filtering) {
      SCOPED_TRACE(mapping + ", " + kDependences[filtering]);
      use("mapping = \"" + mapping + "\"\nfiltering = \"" + kDependences[filtering] + "\"");
      const std::string end = public_end("a:5000", "z:80");
      EXPECT_EQ(inside_end("z:80", end), "a:5000");
      EXPECT_EQ(inside_end("z:81", end), filtering < 2 ? "a:5000" : "no_mapping");
      EXPECT_EQ(inside_end("y:80", end), filtering < 1 ? "a:5000" : "no_mapping");
      EXPECT_EQ(inside_end("z:80", end.substr(0, 2) + "40000"), "no_mapping");
      EXPECT_EQ(inside_end("z:80", end, kTcp), "no_mapping") << "another protocol's port";
      // Answers of the inside to a session from outside leave from the same public end.
      if (filtering < 1) {
        EXPECT_EQ(public_end("a:5000", "y:80"), end);
      }
    }
  }
}

TEST_F(NatTest, FilteringByAddressEndsWithTheLastSessionToIt) {
  use("filtering = \"address-dependent\"");
  const std::string end = public_end("a:5000", "z:80");
  public_end("a:5000", "y:80");
  EXPECT_EQ(inside_end("y:99", end), "a:5000");
  EXPECT_EQ(line_->prove({"y:99", end, kUdp}), Verdict::tracked);
  line_->close({"a:5000", "y:80", kUdp});
  EXPECT_EQ(inside_end("y:98", end), "a:5000") << "an answered session from there lives";
  line_->close({"y:99", end, kUdp});
  EXPECT_EQ(inside_end("y:97", end), "no_mapping") << "only an unanswered one does";
  EXPECT_EQ(inside_end("z:97", end), "a:5000");
}

// Strangers keep no mapping alive by ever new sessions, but those that are answered do.
TEST_F(NatTest, Rfc4787Req6OnlyWhatTheInsideAnswersHoldsAMappingOpen) {
  use("filtering = \"endpoint-independent\"");
  const std::string end = public_end("a:5000", "z:80");
  EXPECT_EQ(inside_end("y:1", end), "a:5000");
  EXPECT_EQ(inside_end("y:2", end), "a:5000");
  line_->close({"a:5000", "z:80", kUdp});
  EXPECT_EQ(inside_end("y:1", end), "a:5000") << "its session goes on";
  EXPECT_EQ(inside_end("y:3", end), "no_mapping");
  EXPECT_EQ(line_->prove({"y:2", end, kUdp}), Verdict::tracked);
  EXPECT_EQ(inside_end("y:3", end), "a:5000");
  line_->close({"y:2", end, kUdp});
  EXPECT_EQ(inside_end("y:4", end), "no_mapping");
  EXPECT_EQ(public_end("a:5000", "z:80"), end) << "two sessions still have the port";
  EXPECT_EQ(inside_end("y:4", end), "a:5000");
  for (const char* const from : {"y:1", "y:3", "y:4"}) line_->close({from, end, kUdp});
  line_->close({"a:5000", "z:80", kUdp});
  EXPECT_EQ(count("mappings"), 0U);
  EXPECT_EQ(count("sessions"), 0U);
}

TEST_F(NatTest, StrangersUseUpNobodysSessions) {
  use("filtering = \"endpoint-independent\"\nsessions_per_customer = 2");
  const std::string end = public_end("a:5000", "z:80");
  for (unsigned n = 0; n < 100; ++n) EXPECT_EQ(inside_end("y:" + std::to_string(n), end), "a:5000");
  EXPECT_EQ(count("sessions"), 1U);
  EXPECT_EQ(line_->prove({"y:7", end, kUdp}), Verdict::tracked);
  EXPECT_EQ(line_->prove({"y:8", end, kUdp}), Verdict::customer_limit) << "he has two";
  EXPECT_EQ(public_end("a:5001", "z:80"), "customer_limit");
  line_->close({"y:7", end, kUdp});
  EXPECT_TRUE(public_end("a:5001", "z:80").contains(':'));
  EXPECT_EQ(count("over_limit"), 2U);
}

TEST_F(NatTest, Rfc4787Req2AllSessionsOfAHostHaveOneAddress) {
  use("block_size = 64\nblocks_per_customer = 1024");
  const char address = public_end("a:1", "z:80")[0];
  for (unsigned n = 2; n < 1000; ++n)
    ASSERT_EQ(public_end("a:" + std::to_string(n), "z:80")[0], address);
  EXPECT_EQ(count("held"), 16U);
}

TEST_F(NatTest, Rfc4787Req3NoTwoEndpointsHaveOnePort) {
  use("block_size = 64\nports = \"1024-2047\"\nblocks_per_customer = 2");
  std::set<std::string> ends;
  for (char host = 'a'; host <= 'o'; ++host) {
    for (unsigned n = 0; n < 128; ++n)
      EXPECT_TRUE(
          ends.insert(public_end(std::string{host} + ":" + std::to_string(5000 + n), "z:80"))
              .second);
    EXPECT_EQ(public_end(std::string{host} + ":6000", "z:80"), "no_port");
  }
  EXPECT_EQ(ends.size(), 15U * 128U) << "all ports of two blocks each";
  EXPECT_EQ(count("no_port"), 15U);
  EXPECT_EQ(count("mappings"), 15U * 128U);
}

TEST_F(NatTest, Rfc4787Req4ParityIsKept) {
  use();
  for (unsigned n = 0; n < 200; ++n) {
    const std::string inside = std::to_string(6001 + 3 * n);
    const std::string end = public_end("a:" + inside, "z:80");
    EXPECT_EQ(std::stoi(port(end)) % 2, std::stoi(inside) % 2);
  }
}

TEST_F(NatTest, Rfc4787Req9HairpinsWithThePublicSource) {
  use("filtering = \"endpoint-independent\"");
  const std::string b = public_end("b:7000", "z:80");
  const Sent hairpin = send("a:5000", b);
  EXPECT_EQ(hairpin.verdict, Verdict::tracked);
  EXPECT_EQ(hairpin.to, "b:7000");
  EXPECT_EQ(hairpin.from, public_end("a:5000", "z:80"));
  const Sent back = send("b:7000", hairpin.from);
  EXPECT_EQ(back.from, b);
  EXPECT_EQ(back.to, "a:5000");
  const Sent to_itself = send("a:5000", hairpin.from);
  EXPECT_EQ(to_itself.from, hairpin.from);
  EXPECT_EQ(to_itself.to, "a:5000");
  use();
  EXPECT_EQ(inside_end("a:5000", public_end("b:7000", "z:80")), "no_mapping")
      << "filtering holds for hairpins, too";
}

TEST_F(NatTest, Rfc4787Req9TwoCustomersPunchHolesToEachOther) {
  for (const std::string filtering : kDependences) {
    const bool takes_all = filtering == kDependences[0];
    for (const std::uint8_t protocol : {kUdp, kTcp}) {
      SCOPED_TRACE(filtering);
      use("filtering = \"" + filtering + "\"");
      const std::string a = public_end("a:5000", "z:80", protocol);
      const std::string b = public_end("b:7000", "z:80", protocol);
      EXPECT_EQ(inside_end("a:5000", b, protocol), takes_all ? "b:7000" : "no_mapping");
      for (unsigned n = 0; n < 2; ++n) {
        const Sent to_a = send("b:7000", a, protocol);
        EXPECT_EQ(to_a.from, b);
        EXPECT_EQ(to_a.to, "a:5000");
        const Sent to_b = send("a:5000", b, protocol);
        EXPECT_EQ(to_b.from, a);
        EXPECT_EQ(to_b.to, "b:7000");
      }
      EXPECT_EQ(count("sessions"), 4U) << "each customer has one with the other";
      if (filtering == kDependences[1]) continue;  // c may have b's address
      EXPECT_EQ(inside_end("c:1", a, protocol), takes_all ? "a:5000" : "no_mapping");
    }
  }
}

TEST_F(NatTest, APingToAPublicAddressIsOneFromOutside) {
  use("filtering = \"endpoint-independent\"");
  const char own = public_end("a:5", "z:5", kProtocolIcmp)[0];
  for (const char address : std::string("pqrs")) {
    const Sent ping = send("a:5", std::string{address} + ":5", kProtocolIcmp);
    EXPECT_EQ(ping.verdict, address == own ? Verdict::tracked : Verdict::no_mapping);
    if (address == own) {
      EXPECT_EQ(ping.to[0], 'a') << "its identifier outside is its own";
    }
  }
}

TEST_F(NatTest, Rfc5382Req1TcpBeginsWithASyn) {
  use();
  EXPECT_EQ(send("a:5000", "z:80", kTcp, Line::kAck).verdict, Verdict::no_connection);
  EXPECT_EQ(send("a:5000", "z:80", kTcp, Line::kSyn).verdict, Verdict::tracked);
  EXPECT_EQ(send("a:5000", "z:80", kTcp, Line::kAck).verdict, Verdict::tracked);
}

TEST_F(NatTest, Rfc6888Req4SessionsOfACustomerAreLimited) {
  use("sessions_per_customer = 3");
  for (unsigned n = 0; n < 3; ++n)
    EXPECT_NE(public_end("a:5000", "z:" + std::to_string(80 + n)), "customer_limit");
  EXPECT_EQ(public_end("a:5000", "z:90"), "customer_limit");
  EXPECT_TRUE(public_end("b:5000", "z:90").contains(':'));
  line_->close({"a:5000", "z:80", kUdp});
  EXPECT_NE(public_end("a:5000", "z:90"), "customer_limit");
  EXPECT_EQ(count("over_limit"), 1U);
}

TEST_F(NatTest, Rfc6888Req6ExemptDestinationsAreNotTranslated) {
  use("", "exempt = \"10.0.0.24/29\"\n");  // x to z
  EXPECT_EQ(send("a:5000", "z:80").verdict, Verdict::no_service);
  EXPECT_EQ(send("a:5000", "w:80").verdict, Verdict::tracked);
  EXPECT_EQ(send("t:5000", "w:80").verdict, Verdict::no_service) << "no customer";
}

TEST_F(NatTest, Rfc6888Req8APortRestsBeforeAnotherCustomerHasIt) {
  use("block_size = 64\nports = \"1024-1087\"\nblocks_per_customer = 1");  // a block an address
  std::vector<std::string> first;
  for (const char* from : {"a:1", "b:1", "c:1", "d:1"}) first.push_back(public_end(from, "z:80"));
  EXPECT_EQ(public_end("e:1", "z:80"), "no_port");
  line_->close({"a:1", "z:80", kUdp});
  line_->at(119'000);
  EXPECT_EQ(public_end("e:1", "z:80"), "no_port");
  line_->at(121'000);
  EXPECT_EQ(public_end("e:1", "z:80")[0], first[0][0]);
  EXPECT_EQ(public_end("a:1", "z:80"), "no_port");
  line_->close({"b:1", "z:80", kUdp});
  EXPECT_EQ(public_end("b:2", "z:80")[0], first[1][0]) << "the same customer, at once";
}

TEST_F(NatTest, APortIsSharedWhereEachSessionHasItsOwn) {
  use("block_size = 64\nports = \"1024-1087\"\nblocks_per_customer = 1\n"
      "mapping = \"address-and-port-dependent\"");
  std::set<std::string> ends;
  for (unsigned n = 0; n < 500; ++n)
    ends.insert(public_end("a:" + std::to_string(5000 + n), "z:" + std::to_string(80 + n % 50)));
  EXPECT_EQ(ends.size(), 64U) << "all ports are used, and each for several remote ends";
  EXPECT_EQ(count("sessions"), 500U);
  for (unsigned n = 0; n < 500; ++n)
    line_->close({"a:" + std::to_string(5000 + n), "z:" + std::to_string(80 + n % 50), kUdp});
  EXPECT_EQ(count("sessions"), 0U);
  EXPECT_EQ(count("mappings"), 0U);
}

TEST_F(NatTest, OtherProtocolsKeepTheCustomersAddress) {
  use();
  const char address = public_end("a:1", "z:80")[0];
  constexpr std::uint8_t kGre = 47;
  const std::string gre = public_end("a:0", "z:0", kGre);
  EXPECT_EQ(gre[0], address);
  EXPECT_EQ(inside_end("z:0", gre, kGre)[0], 'a');
  EXPECT_EQ(inside_end("y:0", gre, kGre), "no_mapping");
}

TEST_F(NatTest, TwoCustomersOfAnAddressCannotBothUseAProtocolWithoutPorts) {
  constexpr std::uint8_t kEsp = 50;
  for (const std::string mapping : kDependences) {
    use("mapping = \"" + mapping + "\"\nblock_size = 64\nblocks_per_customer = 1");
    std::set<std::string> ends;
    for (char host = 'a'; host <= 'o'; ++host) {
      const std::string end = public_end(std::string{host} + ":0", "z:0", kEsp);
      EXPECT_TRUE(end == "reply_collision" || ends.insert(end).second) << end;
    }
    EXPECT_LE(ends.size(), 4U) << "one of each public address";
    EXPECT_EQ(count("sessions"), ends.size());
  }
}

// A kernel's session, say, has the reply's key.
TEST_F(NatTest, APortWhoseReplyIsTakenGivesWayToAnother) {
  use("mapping = \"address-and-port-dependent\"\nblock_size = 64\nports = \"1024-1087\"\n"
      "blocks_per_customer = 1");
  std::vector<std::string> ends;
  for (unsigned n = 0; n < 200; ++n)
    ends.push_back(public_end("a:" + std::to_string(5000 + n), "z:80"));
  std::set<std::string> shared;
  for (unsigned n = 0; n < 30; ++n)
    shared.insert(public_end("a:" + std::to_string(6000 + n), "y:80"));
  EXPECT_EQ(shared.size(), 30U) << "a hash gives two of 30 the same one of 64 ports";
  EXPECT_FALSE(shared.contains("no_port"));
  for (unsigned n = 0; n < 200; ++n) {
    if (ends[n].size() < 8) line_->close({"a:" + std::to_string(5000 + n), "z:80", kUdp});
  }
  for (unsigned n = 0; n < 30; ++n) line_->close({"a:" + std::to_string(6000 + n), "y:80", kUdp});
  EXPECT_EQ(count("sessions"), 0U);
  EXPECT_EQ(count("mappings"), 0U);
}

TEST_F(NatTest, TheHostsOwnAddressStaysReachable) {
  v4_.own = {{Line::host('p'), 8, 0}, {Line::host('y'), 8, 0}};
  use("filtering = \"endpoint-independent\"");
  EXPECT_EQ(send("z:5000", "p:22", kTcp).verdict, Verdict::no_service);
  EXPECT_EQ(send("a:5000", "p:22", kTcp).verdict, Verdict::no_service);
  EXPECT_EQ(send("a:5000", "y:53").verdict, Verdict::no_service);
  HostAddresses<AddressV4> told;
  HostAddresses<AddressV6> none;
  read(text_of("")).first->tell(told, none);
  EXPECT_EQ(told.virtual_addresses.size(), 3U);
  EXPECT_EQ(told.served.size(), 1U);
}

TEST_F(NatTest, PacketsToPublicAddressesWithoutAMappingAreDropped) {
  use();
  EXPECT_EQ(inside_end("z:80", "p:5000"), "no_mapping");
  EXPECT_EQ(inside_end("z:80", "p:1"), "no_mapping");
  EXPECT_EQ(inside_end("z:80", "p:5000", kTcp), "no_mapping");
  EXPECT_EQ(count("held"), 0U);
  EXPECT_EQ(inside_end("a:80", "p:5000"), "no_mapping");
  EXPECT_EQ(count("sessions"), 1U) << "as if the packet had left";
}

TEST_F(NatTest, AFullTableTakesNoPort) {
  use();
  line_->full = true;
  EXPECT_EQ(public_end("a:1", "z:80"), "table_full");
  line_->full = false;
  line_->replies_full = true;
  EXPECT_EQ(public_end("a:1", "z:80"), "table_full");
  EXPECT_EQ(count("sessions"), 0U);
  EXPECT_EQ(count("mappings"), 0U);
}

TEST_F(NatTest, SessionsGoOnInAnotherProcess) {
  for (const std::string mapping : kDependences) {
    SCOPED_TRACE(mapping);
    use("filtering = \"endpoint-independent\"\nmapping = \"" + mapping + "\"");
    const std::string a = public_end("a:5000", "z:80");
    const std::string b = public_end("b:5000", "z:80", kTcp);
    const std::string hairpin = send("c:9", a).from;
    EXPECT_EQ(inside_end("y:1", a), "a:5000");
    line_->prove_all();
    const auto old = std::move(line_);
    const auto old_deployment = std::move(deployment_);
    use("filtering = \"endpoint-independent\"\nmapping = \"" + mapping + "\"");
    EXPECT_EQ(line_->take_over(*old), 5U);
    EXPECT_EQ(public_end("a:5000", "z:80"), a);
    EXPECT_EQ(inside_end("z:80", b, kTcp), "b:5000");
    EXPECT_EQ(inside_end("y:1", a), "a:5000");
    EXPECT_EQ(send("c:9", a).from, hairpin);
    EXPECT_EQ(count("sessions"), 5U) << "a hairpin counts for both customers";
    if (mapping == kDependences[0]) {
      EXPECT_EQ(public_end("a:5000", "x:80"), a);
    }
    std::set<std::string> others;
    for (unsigned n = 0; n < 500; ++n) others.insert(public_end("a:" + std::to_string(n), "z:80"));
    EXPECT_FALSE(others.contains(a)) << "no port is given out twice";
  }
}

// In a chain, another function may have such a connection.
TEST_F(NatTest, ConnectionsToTheHostGoOnUntranslated) {
  v4_.own = {{Line::host('y'), 8, 0}};
  use();
  std::array<std::byte, Part::kMost> state;
  std::array<std::byte, Part::kMost> reply_state;
  Opening<KeyV4> opening{.key = {.source = Line::host('a'), .destination = Line::host('y')},
                         .state = state.data(),
                         .reply_state = reply_state.data(),
                         .is_resumed = true};
  line_->function().open(line_->burst(), opening);
  EXPECT_EQ(opening.decision, Opening<KeyV4>::Decision::unconcerned);
  opening.key.destination = Line::host('z');
  line_->function().open(line_->burst(), opening);
  EXPECT_EQ(opening.decision, Opening<KeyV4>::Decision::refused) << "its public end is not known";
}

TEST_F(NatTest, OnlyPacketsToDestinationsAreTranslated) {
  use("", "destination = [\"10.0.0.25\", \"10.0.0.26\"]\nexempt = \"10.0.0.26\"\n");
  EXPECT_TRUE(public_end("a:5000", "y:1").contains(':'));
  EXPECT_EQ(public_end("a:5000", "z:1"), "no_service");
  EXPECT_EQ(public_end("a:5000", "x:1"), "no_service");
}

TEST_F(NatTest, SaysWhatWouldBeRight) {
  const auto of_pool = [this](const std::string& keys) { return read(text_of(keys)).second; };
  EXPECT_EQ(of_pool("mapping = \"cone\""),
            "f:4: nat.pool.mapping: \"cone\" is not known: give \"endpoint-independent\" or "
            "\"address-dependent\" or \"address-and-port-dependent\"");
  EXPECT_EQ(of_pool("block_size = 100"),
            "f:1: nat.pool.block_size: 100 is no power of 2: give 64, 128, 256, 512, 1024, "
            "2048 or 4096");
  EXPECT_EQ(of_pool("ports = \"5000\""),
            "f:4: nat.pool.ports: \"5000\" is no range of ports: give one like \"1024-65535\"");
  EXPECT_EQ(
      of_pool("ports = \"1024-1100\""),
      "f:1: nat.pool.ports: are fewer than block_size, 512: give more ports, or smaller blocks");
  EXPECT_EQ(read("[[nat.pool]]\nname = \"p\"\naddresses = \"::1\"\n").second,
            "f:3: nat.pool.addresses: \"::1\" is no IPv4 prefix: give one like 198.51.100.0/26 or "
            "198.51.100.1");
  EXPECT_EQ(
      read("[[nat.pool]]\nname = \"p\"\naddresses = \"10.0.0.0/8\"\n").second,
      "f:3: nat.pool.addresses: 10.0.0.0/8 has more than 65536 addresses: give a longer prefix");
  EXPECT_EQ(
      read("[[nat.pool]]\nname = \"p\"\naddresses = [\"10.0.0.0/24\", \"10.0.0.7\"]\n").second,
      "f:3: nat.pool.addresses: 10.0.0.7 is within 10.0.0.0/24, which is in a pool already: "
      "give each address once");
  EXPECT_EQ(read("[[nat.rule]]\nsource = \"10.0.0.0/8\"\npool = \"x\"\n").second,
            "f:3: nat.rule.pool: no pool is called \"x\": give a [[nat.pool]]");
  EXPECT_EQ(read(text_of("") + "[[nat.rule]]\nsource = \"10.0.0.0/28\"\npool = \"q\"\n").second,
            "f:9: nat.rule.source: 10.0.0.0/28 is there already, in line 6: give each prefix once\n"
            "f:10: nat.rule.pool: no pool is called \"q\": give one of \"p\"");
  EXPECT_EQ(read(text_of("") + "[[nat.rule]]\nsource = \"10.0.0.17\"\npool = \"p\"\n").second,
            "f:9: nat.rule.source: 10.0.0.17 is within the pools' 10.0.0.16/30: customers need "
            "addresses of their own");
}

}  // namespace
}  // namespace millrace
