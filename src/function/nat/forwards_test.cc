// Tests static forwards on a line of its own: the ends of sessions, and that nobody else gets a
// forward's port.
#include "function/nat/forwards.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

/// Hosts p to s are a pool's, t and u are whole addresses of c and d.
class ForwardsTest : public NatTest {
 protected:
  static constexpr const char* kForwards = R"(
[[nat.forward]]
public = "10.0.0.16:8443/tcp"
inside = "10.0.0.1:443"
[[nat.forward]]
public = "10.0.0.17:53/udp"
inside = "10.0.0.2"
[[nat.forward]]
public = "10.0.0.20"
inside = "10.0.0.3"
[[nat.forward]]
public = "10.0.0.21"
inside = "10.0.0.4"
)";
  static constexpr std::uint8_t kGre = 47;

  Review reload(const std::string& of_rule) { return NatTest::reload(text_of("", of_rule)); }
};

TEST_F(ForwardsTest, LetSessionsBeginFromOutsideWhateverThePoolsFiltering) {
  use("filtering = \"address-and-port-dependent\"", kForwards);
  EXPECT_EQ(inside_end("z:80", "p:8443", kTcp), "a:443");
  EXPECT_EQ(inside_end("y:80", "p:8443", kTcp), "a:443");
  EXPECT_EQ(inside_end("z:80", "q:53"), "b:53") << "the inside port is the public one by default";
  const Sent back = send("a:443", "z:80", kTcp, Line::kSyn | Line::kAck);
  EXPECT_EQ(back.from, "p:8443");
  EXPECT_EQ(inside_end("z:80", "p:8443"), "no_mapping") << "another protocol";
  EXPECT_EQ(inside_end("z:80", "p:8444", kTcp), "no_mapping");
  EXPECT_EQ(send("x:80", "p:8443", kTcp, Line::kAck).verdict, Verdict::no_mapping)
      << "no SYN (RFC 5382, REQ-1)";
  EXPECT_EQ(count("sessions"), 0U) << "they take no port of the pool";
}

TEST_F(ForwardsTest, Rfc4787Req1AnEndpointKeepsItsPublicEnd) {
  use("", kForwards);
  EXPECT_EQ(public_end("a:443", "z:80", kTcp), "p:8443");
  EXPECT_EQ(public_end("a:443", "y:99", kTcp), "p:8443");
  EXPECT_EQ(public_end("b:53", "z:53"), "q:53");
  EXPECT_NE(public_end("a:443", "z:80"), "p:8443");
  EXPECT_NE(public_end("a:444", "z:80", kTcp), "p:8443");
}

TEST_F(ForwardsTest, NobodyElseGetsTheirPorts) {
  for (const std::string keys :
       {"mapping = \"endpoint-independent\"", "mapping = \"address-and-port-dependent\""}) {
    // All ports of the pool: 64 of each of its four addresses.
    use(keys + "\nports = \"8410-8473\"\nblock_size = 64\nblocks_per_customer = 1", kForwards);
    std::set<std::string> ends;
    for (const char customer : {'e', 'f', 'g', 'h'}) {
      for (unsigned n = 0; n < 100; ++n) {
        const Sent sent =
            send(std::string{customer} + ":" + std::to_string(1000 + n), "z:80", kTcp);
        if (sent.verdict == Verdict::tracked) ends.insert(sent.from);
      }
    }
    EXPECT_EQ(ends.size(), 4 * 64 - 1U);
    EXPECT_FALSE(ends.contains("p:8443"));
    EXPECT_EQ(inside_end("z:80", "p:8443", kTcp), "a:443");
  }
}

TEST_F(ForwardsTest, AWholeAddressIsOneCustomersWithAllItsPorts) {
  use("", kForwards);
  for (const std::uint8_t protocol : {kTcp, kUdp, kProtocolSctp, kGre, kProtocolEsp}) {
    const bool has_port = has_ports(protocol);
    const std::string inside = has_port ? "c:777" : "c:0";
    const std::string outside = has_port ? "t:777" : "t:0";
    const std::string remote = has_port ? "z:80" : "z:0";
    EXPECT_EQ(public_end(inside, remote, protocol), outside) << int{protocol};
    EXPECT_EQ(send(remote, outside, protocol, Line::kSyn | Line::kAck).to, inside);
    EXPECT_EQ(inside_end(has_port ? "y:80" : "y:0", outside, protocol), inside);
  }
  for (const auto& [from, to] : {std::pair{"c:9", "z:9"}, {"z:9", "t:9"}, {"y:8", "t:8"}}) {
    EXPECT_EQ(send(from, to, kProtocolIcmp).verdict, Verdict::tracked);
    EXPECT_EQ(line_->burst().v4.changed[0] & Lane<KeyV4>::kIdentifier, 0) << from;
    EXPECT_EQ(line_->burst().v4.leaving(0).source_port, from[2] - '0') << from;
    EXPECT_EQ(line_->burst().v4.leaving(0).destination_port, from[2] - '0') << from;
  }
  EXPECT_EQ(count("held"), 0U);
  EXPECT_EQ(public_end("e:9", "z:9").substr(0, 1).find_first_of("pqrs"), 0U);
}

TEST_F(ForwardsTest, Rfc4787Req9CustomersReachThem) {
  use("", kForwards);
  const Sent hairpin = send("e:1000", "p:8443", kTcp);
  EXPECT_EQ(hairpin.to, "a:443");
  EXPECT_TRUE(hairpin.from[0] >= 'p' && hairpin.from[0] <= 's') << hairpin.from;
  const Sent back = send("a:443", hairpin.from, kTcp, Line::kSyn | Line::kAck);
  EXPECT_EQ(back.to, "e:1000");
  EXPECT_EQ(back.from, "p:8443");
  const Sent whole = send("c:1", "u:2", kUdp);
  EXPECT_EQ(whole.from, "t:1");
  EXPECT_EQ(whole.to, "d:2");
  const Sent ping = send("e:5", "u:5", kProtocolIcmp);
  EXPECT_EQ(ping.verdict, Verdict::tracked) << "the whole address has all identifiers";
  EXPECT_EQ(ping.to[0], 'd');
  EXPECT_EQ(send("c:6", "u:6", kProtocolIcmp).to, "d:6");
  EXPECT_EQ(send("e:0", "t:0", kGre).to, "c:0");
}

TEST_F(ForwardsTest, OneWorkerHasAllSessionsOfACustomer) {
  use("filtering = \"endpoint-independent\"", kForwards);
  const std::string dynamic = public_end("a:5", "z:80");
  const auto owner = [this](const std::string& from, const std::string& to, std::uint8_t protocol) {
    const std::array keys{
        KeyV4{.source = Line::host(from[0]),
              .destination = Line::host(to[0]),
              .source_port = static_cast<std::uint16_t>(std::stoi(from.substr(2))),
              .destination_port = static_cast<std::uint16_t>(std::stoi(to.substr(2))),
              .protocol = protocol}};
    const Steered steered = line_->function().steer(keys, {});
    return steered.is_by_owner(0) ? std::optional(steered.owner[0]) : std::nullopt;
  };
  EXPECT_EQ(owner("z:80", "p:8443", kTcp), Line::host('a'));
  EXPECT_EQ(owner("a:443", "z:80", kTcp), Line::host('a'));
  EXPECT_EQ(owner("z:80", dynamic, kUdp), Line::host('a'));
  EXPECT_NE(owner("z:80", "p:8443", kUdp), Line::host('a'));
  for (const std::uint8_t protocol : {kTcp, kProtocolIcmp, kGre}) {
    EXPECT_EQ(owner("c:0", "z:0", protocol), Line::host('c'));
    EXPECT_EQ(owner("z:0", "t:0", protocol), Line::host('c'));
    EXPECT_EQ(owner("c:0", "u:0", protocol), Line::host('c'));
    EXPECT_EQ(owner("t:0", "u:0", protocol), Line::host('d')) << "when it comes again";
  }
  // GRE from a customer without a public address of his own to another one's, and the reply.
  // The host keeps packets to public addresses for itself unless they belong to an owner.
  EXPECT_EQ(owner("e:0", "t:0", kGre), Line::host('t')) << "the remote end";
  EXPECT_EQ(owner("t:0", "q:0", kGre), Line::host('t'));
  EXPECT_EQ(owner("q:0", "t:0", kGre), Line::host('c'));
  EXPECT_EQ(owner("c:0", "q:0", kGre), Line::host('c'));
}

TEST_F(ForwardsTest, TheHostKeepsTheOtherPortsOfItsAddress) {
  v4_.own = {{Line::host('y'), 8, 0}};
  use("", "[[nat.forward]]\npublic = \"10.0.0.25:80/tcp\"\ninside = \"10.0.0.1:8080\"\n");
  EXPECT_EQ(inside_end("z:80", "y:80", kTcp), "a:8080");
  EXPECT_EQ(send("z:80", "y:22", kTcp).verdict, Verdict::no_service);
  HostAddresses<AddressV4> told;
  HostAddresses<AddressV6> none;
  read(text_of("", kForwards)).first->tell(told, none);
  EXPECT_EQ(told.virtual_addresses.size(), 6U) << "each address once";
}

TEST_F(ForwardsTest, NoneLeadsToTheHost) {
  v4_.own = {{Line::host('e'), 8, 0}};
  const auto doubts = [this](const std::string& inside) {
    const auto [settings, wrong] =
        read(text_of("") + "[[nat.forward]]\npublic = \"10.0.0.25:80/tcp\"\ninside = \"" + inside +
             "\"\n");
    EXPECT_EQ(wrong, "");
    std::vector<std::string> all;
    settings->append_doubts(around_, all);
    return all;
  };
  EXPECT_EQ(doubts("10.0.0.4:80"), std::vector<std::string>());
  EXPECT_EQ(
      doubts("10.0.0.5:80"),
      std::vector<std::string>{"the forward of 10.0.0.25:80/tcp leads to millrace's own "
                               "address 10.0.0.5, where nothing takes it: give a customer's"});
}

TEST_F(ForwardsTest, AReloadEndsSessionsOfForwardsThatAreGone) {
  use("", kForwards);
  struct Session {
    std::string from, to;
    std::uint8_t protocol;
  };
  const std::array<Session, 4> all{{{"z:80", "p:8443", kTcp},
                                    {"b:53", "z:53", kUdp},
                                    {"c:1", "z:1", kUdp},
                                    {"e:1", "z:1", kUdp}}};
  for (const Session& one : all)
    ASSERT_EQ(send(one.from, one.to, one.protocol).verdict, Verdict::tracked);
  EXPECT_EQ(reload(kForwards), Review::none);
  std::array<Fate, 4> fates{};
  const auto look = [&] {
    for (unsigned n = 0; n < all.size(); ++n)
      fates[n] = line_->fate({all[n].from, all[n].to, all[n].protocol, Line::kSyn}, false);
    return fates;
  };
  EXPECT_EQ(reload("[[nat.forward]]\npublic = \"10.0.0.20\"\ninside = \"10.0.0.3\"\n"),
            Review::all);
  EXPECT_EQ(look(), (std::array{Fate::reset, Fate::begins_anew, Fate::stays, Fate::stays}));
  EXPECT_EQ(reload("[[nat.forward]]\npublic = \"10.0.0.20\"\ninside = \"10.0.0.4\"\n"),
            Review::all);
  EXPECT_EQ(look()[2], Fate::begins_anew) << "the address is another customer's";
  EXPECT_EQ(inside_end("x:1", "t:1"), "d:1");
}

TEST_F(ForwardsTest, SessionsGoOnInAnotherProcess) {
  use("", kForwards);
  EXPECT_EQ(inside_end("z:80", "p:8443", kTcp), "a:443");
  EXPECT_EQ(public_end("b:53", "z:53"), "q:53");
  EXPECT_EQ(public_end("c:1", "z:1"), "t:1");
  const std::string hairpin = send("e:1000", "p:8443", kTcp).from;
  const auto old = std::move(line_);
  const auto old_deployment = std::move(deployment_);
  use("", kForwards);
  EXPECT_EQ(line_->take_over(*old), 5U);
  EXPECT_EQ(send("a:443", "z:80", kTcp, Line::kAck).from, "p:8443");
  EXPECT_EQ(send("z:1", "t:1").to, "c:1");
  EXPECT_EQ(send("e:1000", "p:8443", kTcp).from, hairpin);
  use();  // without forwards: only what needs none goes on
  EXPECT_EQ(line_->take_over(*old), 1U) << "that of the sender of the hairpin";
}

TEST_F(ForwardsTest, Rfc6888Req8TheirPortsRestOnceTheyAreGone) {
  const std::string keys = "ports = \"8410-8473\"\nblock_size = 64\nblocks_per_customer = 1\n";
  // Has a customer of that address ask for all of its ports. True: he gets the forward's.
  const auto gets = [this](char customer, std::uint8_t protocol = kTcp) {
    std::set<std::string> ends;
    for (unsigned n = 0; n < 64; ++n)
      ends.insert(
          public_end(std::string{customer} + ":" + std::to_string(1000 + n), "z:80", protocol));
    return ends.contains("p:8443");
  };
  for (const bool is_again : {false, true}) {
    use(keys, kForwards);
    unsigned tried = 0;
    for (const char customer : {'e', 'f', 'g', 'h'}) {  // one gets the address with the forward
      if (public_end(std::string{customer} + ":1", "z:80", kProtocolSctp)[0] != 'p') continue;
      ++tried;
      NatTest::reload(text_of(keys));
      EXPECT_FALSE(gets(customer));
      EXPECT_TRUE(gets(customer, kUdp)) << "the forward had another protocol";
      if (is_again) {
        line_->at(60'000);
        NatTest::reload(text_of(keys));
      }
      line_->at(119'999);
      EXPECT_FALSE(gets(customer));
      line_->at(120'000);
      EXPECT_TRUE(gets(customer));
    }
    EXPECT_EQ(tried, 1U);
  }
}

TEST_F(ForwardsTest, Rfc6888Req8WholeAddressesRestOnceTheyAreGone) {
  use("", kForwards);
  std::string text = text_of("");
  text.replace(text.find("10.0.0.16/30"), 12, "10.0.0.20");
  NatTest::reload(text);
  EXPECT_EQ(public_end("e:1", "z:80"), "no_port");
  line_->at(119'999);
  EXPECT_EQ(public_end("e:1", "z:80"), "no_port");
  line_->at(120'000);
  EXPECT_EQ(public_end("e:1", "z:80")[0], 't');
}

TEST_F(ForwardsTest, SayWhatWouldBeRight) {
  const auto problem = [this](const std::string& outside, const std::string& inside,
                              const std::string& more = "") {
    return read(text_of("", more + "[[nat.forward]]\npublic = \"" + outside + "\"\ninside = \"" +
                                inside + "\"\n"))
        .second;
  };
  const std::string first =
      "[[nat.forward]]\npublic = \"10.0.0.16:80/tcp\"\ninside = \"10.0.0.1\"\n";
  const std::string whole = "[[nat.forward]]\npublic = \"10.0.0.20\"\ninside = \"10.0.0.1\"\n";
  EXPECT_EQ(problem("10.0.0.16:80/tcp", "10.0.0.1:8080"), "");
  for (const char* wrong : {"10.0.0.16:80", "10.0.0.16/tcp", "10.0.0.16:0/tcp", "10.0.0.16:80/gre",
                            "[fd00::1]:80/tcp", "x"}) {
    EXPECT_EQ(problem(wrong, "10.0.0.1"),
              "f:9: nat.forward.public: \"" + std::string(wrong) +
                  "\" is no public end: give one like \"198.51.100.1:8443/tcp\", or an IPv4 "
                  "address alone for all its ports");
  }
  EXPECT_EQ(problem("10.0.0.16:80/tcp", "a:1"),
            "f:10: nat.forward.inside: \"a:1\" is no inside endpoint: give one like "
            "\"10.0.0.5:443\"");
  EXPECT_EQ(problem("10.0.0.20", "10.0.0.1:1"),
            "f:10: nat.forward.inside: \"10.0.0.1:1\" is no IPv4 address: give one like "
            "\"10.0.0.5\", without a port, as all ports of the public address go there");
  EXPECT_EQ(problem("10.0.0.16:80/tcp", "10.0.0.99"),
            "f:10: nat.forward.inside: no rule has the source 10.0.0.99: give a [[nat.rule]] for "
            "this customer");
  EXPECT_EQ(problem("10.0.0.1:80/tcp", "10.0.0.2"),
            "f:9: nat.forward.public: 10.0.0.1 is a customer's, by the source of a rule: give a "
            "public address");
  EXPECT_EQ(problem("10.0.0.16", "10.0.0.1"),
            "f:9: nat.forward.public: 10.0.0.16 is in the pool \"p\", whose addresses customers "
            "share: take it out of the pool, or give a port");
  EXPECT_EQ(problem("10.0.0.16:80/tcp", "10.0.0.2", first),
            "f:12: nat.forward.public: 10.0.0.16:80/tcp overlaps 10.0.0.16:80/tcp, in line 9");
  EXPECT_EQ(problem("10.0.0.16:80/udp", "10.0.0.2", first), "");
  EXPECT_EQ(problem("10.0.0.20:80/tcp", "10.0.0.2", whole),
            "f:12: nat.forward.public: 10.0.0.20:80/tcp overlaps 10.0.0.20, in line 9");
  EXPECT_EQ(
      problem("10.0.0.21", "10.0.0.1", whole),
      "f:13: nat.forward.inside: 10.0.0.1 has a public address of its own already, in line 9");
  const std::string for_all =
      "[[nat.rule]]\nsource = \"0.0.0.0/0\"\nsource_groups = 10\npool = \"p\"\n";
  EXPECT_EQ(problem("10.0.0.21", "10.0.0.20", for_all + whole),
            "f:17: nat.forward.inside: 10.0.0.20 is the public address of a forward: give the "
            "customer's own");
  v4_.own = {{Line::host('y'), 8, 0}};
  EXPECT_EQ(problem("10.0.0.25", "10.0.0.1"),
            "f:9: nat.forward.public: 10.0.0.25 is millrace's own address: give a port, or another "
            "address");
}

}  // namespace
}  // namespace millrace
