// Tests how the firewall's part of a configuration is read, and what is said of mistakes in it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "function/firewall/test_settings.h"

namespace millrace {
namespace {

class FirewallReaderTest : public testing::Test {
 protected:
  FirewallReaderTest() {
    around.is.ports = {{"lan"}, {"wan"}};
    around.v4.own = {{v4("10.0.0.1"), 8, 0}, {v4("198.51.100.1"), 24, 1}};
    around.v4.routes = {{v4("0.0.0.0"), 0, 1, v4("198.51.100.254")}};
    around.v6.own = {{v6("fd00::1"), 64, 0}, {v6("fe80::1"), 64, 0}};
    around.v6.routes = {{v6("::"), 0, 1, v6("fd00::2")}};
  }
  static AddressV4 v4(const std::string& text) { return *parse_address<AddressV4>(text); }
  static AddressV6 v6(const std::string& text) { return *parse_address<AddressV6>(text); }

  const FirewallSettings& read(const std::string& text) {
    auto [settings, problems] = test::read_firewall(text, around.is);
    EXPECT_EQ(problems, "");
    kept.push_back(std::move(settings));
    return dynamic_cast<const FirewallSettings&>(*kept.back());
  }
  std::string problems(const std::string& text) {
    return test::read_firewall(text, around.is).second;
  }
  /// Returns the problems of one rule with these keys.
  std::string of_rule(const std::string& keys) {
    return problems("[[firewall.rule]]\nname=\"r\"\naction=\"drop\"\n" + keys);
  }

  test::Around around;
  std::vector<std::shared_ptr<const FunctionSettings>> kept;
};

TEST_F(FirewallReaderTest, ReadsEveryKey) {
  const FirewallSettings& is = read(R"(
[[zone]]
name = "inside"
ports = ["lan"]
[[zone]]
name = "vpn"
ports = "wan"
prefixes = ["192.0.2.0/24", "2001:db8::/32"]
[firewall]
default = "reject"
pickup = "loose"
on_reload = "keep"
log = true
log_rate = "20/min"
[firewall.sets]
none = []
blocked = ["192.0.2.1", "2001:db8::/48"]
[[firewall.rule]]
name = "one"
from = "inside"
to = ["vpn", "host"]
protocol = ["tcp", 17]
source = ["10.0.0.0/8", "@blocked"]
destination = "2001:db8::1"
source_ports = "1024-65535"
destination_ports = [80, "443"]
action = "accept"
limit = { rate = "1000/s", burst = 2000, per = "source" }
log = true
[[firewall.rule]]
name = "two"
icmp = ["Echo-Request", "timestamp-request", "3/4", "5/1-3"]
action = "drop"
)");
  EXPECT_EQ(is.by_default, Action::reject);
  EXPECT_EQ(is.pickup, Pickup::loose);
  EXPECT_EQ(is.on_reload, OnReload::keep);
  EXPECT_EQ(is.zones, (std::vector<std::string>{"inside", "vpn"}));
  ASSERT_EQ(is.sets.size(), 2U);
  EXPECT_EQ(is.sets[0].v4, (std::vector<Prefix<AddressV4>>{{v4("192.0.2.1"), 32}}));
  ASSERT_EQ(is.rules.size(), 2U);
  const RuleMatch<AddressV4>& one = is.rules[0].v4;
  EXPECT_EQ(one.from, 1U << 2);
  EXPECT_EQ(one.to, 1U << 3 | 1U << kHostZone);
  EXPECT_EQ(one.protocols, (std::vector<std::uint8_t>{6, 17}));
  EXPECT_EQ(one.source.prefixes, (std::vector<Prefix<AddressV4>>{{v4("10.0.0.0"), 8}}));
  EXPECT_EQ(one.source.sets, std::vector<std::uint16_t>{0});
  EXPECT_TRUE(one.destination.prefixes.empty() && !one.destination.any);
  EXPECT_EQ(is.rules[0].v6.destination.prefixes.size(), 1U);
  EXPECT_EQ(is.rules[0].limit,
            (RateLimit{.interval_ns = 1'000'000, .burst = 2000, .per = RateLimit::Per::source}));
  EXPECT_TRUE(is.rules[0].logs && !is.rules[1].logs && is.default_logs);
  EXPECT_EQ(is.log_rate, (RateLimit{.interval_ns = 3'000'000'000, .burst = 1}));
  EXPECT_EQ(one.source_ports, (std::vector<Range>{{1024, 65535}}));
  EXPECT_EQ(one.destination_ports, (std::vector<Range>{{80, 80}, {443, 443}}));
  const RuleMatch<AddressV4>& two = is.rules[1].v4;
  EXPECT_EQ(two.protocols, (std::vector<std::uint8_t>{1, 58}));
  EXPECT_EQ(two.destination_ports,
            (std::vector<Range>{{0x800, 0x8ff}, {0xd00, 0xdff}, {0x304, 0x304}, {0x501, 0x503}}));
  EXPECT_EQ(is.rules[1].v6.destination_ports,
            (std::vector<Range>{{0x8000, 0x80ff}, {0x304, 0x304}, {0x501, 0x503}}));
}

TEST_F(FirewallReaderTest, SaysWhatWouldBeRight) {
  EXPECT_EQ(
      problems("[firewall]\ndefault = \"deny\"\n"),
      "f:2: firewall.default: \"deny\" is not known: give \"accept\" or \"drop\" or \"reject\"");
  EXPECT_EQ(problems("[firewall]\nlog = 1\n"),
            "f:2: firewall.log: is an integer: give true or false");
  EXPECT_EQ(problems("[firewall]\nlog_rate = \"fast\"\n"),
            "f:2: firewall.log_rate: \"fast\" is no rate: give one like \"1000/s\", \"20/min\", "
            "\"5/h\" or \"1/d\", at most a million a second");
  EXPECT_EQ(problems("[firewall]\nrules = []\n"),
            "f:2: firewall.rules: unknown key: the nearest known is \"rule\"");
  EXPECT_EQ(problems("[[firewall.rule]]\nname = \"r\"\n"),
            "f:1: firewall.rule.action: is missing: give it");
  EXPECT_EQ(of_rule("[[firewall.rule]]\nname=\"r\"\naction=\"drop\"\n"),
            "f:5: firewall.rule.name: \"r\" is there already, in line 2: give another");
  EXPECT_EQ(problems("[firewall.sets]\nbad = []\nworse = []\n[[firewall.rule]]\nname=\"x\"\n"
                     "action=\"drop\"\nsource = \"bad\"\n[[firewall.rule]]\nname=\"y\"\n"
                     "action=\"drop\"\nsource = \"@other\"\n"),
            "f:7: firewall.rule.source: \"bad\" is a set: give \"@bad\"\n"
            "f:11: firewall.rule.source: no set is called \"other\": add it to [firewall.sets], "
            "which has bad, worse");
  EXPECT_EQ(problems("[[firewall.rule]]\naction=\"drop\"\nname=\"" + std::string(129, 'x') + "\""),
            "f:3: firewall.rule.name: has a name of 129 bytes: give one of 128 at most");
  EXPECT_EQ(problems("[[firewall.rule]]\nname=\"default\"\naction=\"drop\"\n"),
            "f:2: firewall.rule.name: \"default\" has a meaning already: give another");
  EXPECT_EQ(of_rule("from = \"lan\"\n"),
            "f:4: firewall.rule.from: no zone is called \"lan\": give one of \"host\"");
  EXPECT_EQ(
      of_rule("to = [\"host\", 1.5]\n"),
      "f:4: firewall.rule.to: is a floating-point number: give a string, or a list of strings");
  EXPECT_EQ(of_rule("from = []\n"),
            "f:4: firewall.rule.from: is empty: name at least one, or leave the key out");
  EXPECT_EQ(of_rule("source = \"@bad\"\n"),
            "f:4: firewall.rule.source: no set is called \"bad\": add it to [firewall.sets]");
  EXPECT_EQ(of_rule("source = \"any\"\n"),
            "f:4: firewall.rule.source: \"any\" is no prefix: give one like 192.0.2.0/24, "
            "2001:db8::/32 or 192.0.2.1");
  EXPECT_EQ(
      of_rule("source = \"10.0.0.1/8\"\n"),
      "f:4: firewall.rule.source: 10.0.0.1/8 has bits set behind its prefix: give 10.0.0.0/8");
  EXPECT_EQ(of_rule("source = \"10.0.0.1\"\ndestination = \"fd00::1\"\n"),
            "f:1: firewall.rule: names a source of one address family and a destination of the "
            "other, which no packet has: give both of one family");
  EXPECT_EQ(of_rule("destination_ports = 80\n"),
            "f:4: firewall.rule.destination_ports: needs a protocol that has ports, and no other: "
            "give protocol = \"tcp\", \"udp\" or both");
  EXPECT_EQ(of_rule("protocol = \"tcp\"\ndestination_ports = \"100-80\"\n"),
            "f:5: firewall.rule.destination_ports: \"100-80\" is no port: give one like \"80\", or "
            "a range like \"8000-8100\", up to 65535");
  EXPECT_EQ(of_rule("protocol = \"256\"\n").substr(0, 54),
            "f:4: firewall.rule.protocol: \"256\" is no protocol: giv");
  EXPECT_EQ(
      of_rule("protocol = \"tcp\"\nicmp = \"echo-request\"\n"),
      "f:5: firewall.rule.icmp: needs protocol = \"icmp\", \"icmpv6\" or none: leave the others "
      "out");
  EXPECT_EQ(
      of_rule("icmp = \"echo\"\n"),
      "f:4: firewall.rule.icmp: \"echo\" is no message: give echo-request, timestamp-request, "
      "router-solicitation, router-advertisement, extended-echo-request, or a type, or type "
      "and code like \"3/4\"");
  EXPECT_EQ(of_rule("limit = { rate = \"1/s\" }\n"),
            "f:4: firewall.rule.limit: limits what a rule accepts, and this one accepts nothing: "
            "leave it out");
  const std::string accepts = "[[firewall.rule]]\nname = \"r\"\naction = \"accept\"\nlimit = ";
  EXPECT_EQ(problems(accepts + "{ rate = \"10\" }\n"),
            "f:4: firewall.rule.limit.rate: \"10\" is no rate: give one like \"1000/s\", "
            "\"20/min\", \"5/h\" or \"1/d\", at most a million a second");
  EXPECT_EQ(
      problems(accepts + "{ rate = \"1/d\", burst = 8 }\n"),
      "f:4: firewall.rule.limit: has a burst that takes more than a week to come back: give a "
      "smaller burst");
  EXPECT_EQ(problems(accepts + "{ burst = 8 }\n"),
            "f:4: firewall.rule.limit.rate: is missing: give it");
  EXPECT_EQ(problems("[[zone]]\nname = \"host\"\nprefixes = [\"10.0.0.0/8\"]\n"),
            "f:2: zone.name: \"host\" has a meaning already: give another");
  EXPECT_EQ(problems("[[zone]]\nname = \"z\"\n"),
            "f:1: zone: has neither ports nor prefixes: give at least one of them");
  EXPECT_EQ(problems("[[zone]]\nname = \"z\"\nports = [\"dmz\"]\n"),
            "f:3: zone.ports: no port is called \"dmz\": give one of \"lan\", \"wan\"");
  EXPECT_EQ(problems("[firewall.sets]\nblocked = \"10.0.0.1\"\n"),
            "f:2: firewall.sets.blocked: is a string: give a list of prefixes");
}

TEST_F(FirewallReaderTest, APlaceIsInOneZone) {
  const std::string first = "[[zone]]\nname = \"a\"\n";
  const std::string second = "\n[[zone]]\nname = \"b\"\n";
  const std::string prefix = "prefixes = [\"10.0.0.0/8\"]\n";
  const std::string lan = "ports = [\"lan\"]\n";
  const std::string wan = "ports = [\"wan\"]\n";
  EXPECT_EQ(
      problems(first + prefix + second + prefix),
      "f:5: zone: \"b\" has 10.0.0.0/8, which is in the zone \"a\" already: name it in one zone");
  EXPECT_EQ(problems(first + lan + second + lan),
            "f:5: zone: \"b\" has the port \"lan\", which is in the zone \"a\" already: name it in "
            "one zone");
  EXPECT_EQ(
      problems(first + lan + prefix + second + lan + prefix),
      "f:6: zone: \"b\" has 10.0.0.0/8 at \"lan\", which is in the zone \"a\" already: name it "
      "in one zone");
  EXPECT_EQ(problems(first + lan + prefix + second + wan + prefix), "");
  EXPECT_EQ(problems(first + lan + prefix + second + prefix), "");
  EXPECT_EQ(problems(first + "prefixes = [\"10.0.0.0/8\", \"10.0.0.0/8\"]\n"), "");
}

TEST_F(FirewallReaderTest, DoubtsRulesThatNeverDecide) {
  const auto doubts = [this](const std::string& first, const std::string& second) {
    const auto rule = [](const std::string& name, const std::string& keys) {
      return "[[firewall.rule]]\nname = \"" + name + "\"\naction = \"accept\"\n" + keys + "\n";
    };
    std::vector<std::string> all;
    read("[firewall.sets]\none = []\ntwo = []\n" + rule("a", first) + rule("b", second))
        .append_doubts(around.is, all);
    return all.empty() ? std::string() : all.front();
  };
  const std::string said =
      "the rule \"b\" never decides: the rule \"a\" comes before it and matches all of its packets";
  EXPECT_EQ(doubts("", ""), said);
  EXPECT_EQ(doubts("", "source = \"@one\""), said);
  EXPECT_EQ(doubts("source = [\"@two\", \"@one\", \"10.0.0.0/8\"]",
                   "source = [\"10.1.0.0/16\", \"@one\"]"),
            said);
  EXPECT_EQ(doubts("protocol = [\"tcp\", \"udp\"]\ndestination_ports = \"80-90\"",
                   "protocol = \"tcp\"\ndestination_ports = [\"80\", \"85-90\"]"),
            said);
  EXPECT_EQ(doubts("source = \"::/0\"", "source = [\"fd00::/8\"]"), said) << "b has no IPv4";
  EXPECT_EQ(doubts("icmp = \"8/0\"", "icmp = \"8\""), "");
  EXPECT_EQ(doubts("source = \"@one\"", "source = \"@two\""), "");
  EXPECT_EQ(doubts("source = \"10.0.0.0/8\"", ""), "");
  EXPECT_EQ(doubts("source = \"10.0.0.0/8\"", "source = \"10.0.0.0/7\""), "");
  EXPECT_EQ(doubts("source = \"10.0.0.0/8\"", "source = [\"10.0.0.0/9\", \"fd00::/8\"]"), "");
  EXPECT_EQ(doubts("from = \"host\"", "to = \"host\""), "");
  EXPECT_EQ(doubts("protocol = \"tcp\"\ndestination_ports = \"80-90\"",
                   "protocol = \"tcp\"\ndestination_ports = \"85-91\""),
            "");
}

TEST_F(FirewallReaderTest, RefusesMoreZonesAndSetsThanThereCanBe) {
  std::string zones;
  for (unsigned n = 0; n < kMostZones; ++n)
    zones += "[[zone]]\nname = \"" + std::to_string(n) + "\"\nprefixes = \"10." +
             std::to_string(n) + ".0.0/16\"\n";
  const std::string rule = "[[firewall.rule]]\nname=\"r\"\nfrom=\"63\"\naction=\"drop\"\n";
  EXPECT_TRUE(
      problems(zones + rule).starts_with("f:187: zone: there are 64 zones: give at most 62"));
  std::string sets = "[firewall.sets]\n";
  for (unsigned n = 0; n <= kMostSets; ++n) sets += "s" + std::to_string(n) + " = []\n";
  EXPECT_TRUE(problems(sets).ends_with("firewall.sets: there are 257 sets: give at most 256"));
}

// A zone with ports and prefixes takes only packets that have both; a longer prefix counts before a
// shorter one, and the host's own addresses before all.
TEST_F(FirewallReaderTest, AddressesAreInZones) {
  const Zones& zones = *read(R"(
[[zone]]
name = "lan"
ports = ["lan"]
[[zone]]
name = "servers"
ports = ["lan"]
prefixes = ["10.1.0.0/16", "fd00::/64"]
[[zone]]
name = "one"
prefixes = ["10.1.1.1"]
)")
                            .zone_tables;
  constexpr std::uint8_t kLan = 2;
  constexpr std::uint8_t kServers = 3;
  constexpr std::uint8_t kOne = 4;
  EXPECT_EQ(zones.v4.from(v4("10.2.0.1"), 0), kLan);
  EXPECT_EQ(zones.v4.from(v4("10.1.0.1"), 0), kServers);
  EXPECT_EQ(zones.v4.from(v4("10.1.0.1"), 1), kNoZone) << "not at that port";
  EXPECT_EQ(zones.v4.from(v4("10.1.1.1"), 0), kOne);
  EXPECT_EQ(zones.v4.from(v4("10.1.1.1"), 1), kOne);
  EXPECT_EQ(zones.v4.from(v4("192.0.2.1"), 1), kNoZone);
  EXPECT_EQ(zones.v4.from(v4("10.1.0.1"), kNoLink), kServers) << "by the route";
  EXPECT_EQ(zones.v4.to(v4("10.1.0.1")), kServers);
  EXPECT_EQ(zones.v4.to(v4("10.9.0.1")), kLan);
  EXPECT_EQ(zones.v4.to(v4("10.0.0.1")), kHostZone);
  EXPECT_EQ(zones.v4.to(v4("198.51.100.1")), kHostZone);
  EXPECT_EQ(zones.v4.to(v4("198.51.100.7")), kNoZone);
  EXPECT_EQ(zones.v4.around(v4("10.0.0.1")), kLan) << "the network of the host's own address";
  EXPECT_EQ(zones.v4.from(v4("10.0.0.1"), kAgainLink), kLan);
  EXPECT_EQ(zones.v4.around(v4("10.1.0.1")), kServers);
  EXPECT_EQ(zones.v4.around(v4("8.8.8.8")), kNoZone);
  EXPECT_EQ(zones.v4.to(v4("8.8.8.8")), kNoZone);
  EXPECT_EQ(zones.v6.to(v6("fd00::7")), kServers);
  EXPECT_EQ(zones.v6.to(v6("2001:db8::1")), kNoZone) << "no zone has the port wan";
  EXPECT_EQ(zones.v6.to(v6("fe80::1")), kHostZone);
  EXPECT_EQ(zones.v6.to(v6("fe80::7")), kHostZone) << "nobody forwards link-local addresses";
  EXPECT_EQ(zones.v6.from(v6("fe80::7"), 0), kLan);
}

}  // namespace
}  // namespace millrace
