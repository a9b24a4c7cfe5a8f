#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "config/config.h"
#include "core/address.h"
#include "function/nat/settings.h"

namespace millrace {
namespace {

Result<Config> read_all(const std::string& text, const std::string& top = "function = \"nat\"\n") {
  return parse_config(top + text, "f.toml", {{"race"}, {"sharded"}, {"wheel"}});
}

std::string port_with(const std::string& keys) {
  return "[[port]]\nname = \"access\"\ndevice = \"null\"\naddresses = [\"172.16.0.1/24\"]\n" +
         keys + "\n";
}

TEST(TunnelConfig, GivesCustomersNumbersInTheirOrder) {
  const auto config = read_all(port_with(R"(tunnel = "gre"
customers = ["172.17.0.0/18", { name = "c17", address = "172.18.0.9", key = 7 },
             { address = "172.18.0.9", key = 8 }])"));
  ASSERT_TRUE(config) << config.error().message;
  const Customers& all = *config->live.customers;
  EXPECT_EQ(all.size(), 16'384U + 2);
  EXPECT_EQ(all.find(0, *parse_address<AddressV4>("172.18.0.9"), 7), 16'385U);
  EXPECT_EQ(all.name_of(16'385), "c17");
  EXPECT_EQ(all.name_of(16'386), "172.18.0.9 key 8");
}

/// Keys of a port, and the problem that they are.
struct WrongTunnel {
  const char* keys;
  const char* problem;

  friend std::ostream& operator<<(std::ostream& to, const WrongTunnel& one) {
    return to << one.keys;
  }
};
class WrongTunnels : public testing::TestWithParam<WrongTunnel> {};

TEST_P(WrongTunnels, AreTold) {
  const auto config = read_all(port_with(GetParam().keys));
  ASSERT_FALSE(config);
  EXPECT_TRUE(config.error().message.contains(GetParam().problem)) << config.error().message;
}

#define CUSTOMERS(all) "tunnel = \"gre\"\ncustomers = " all
INSTANTIATE_TEST_SUITE_P(
    TunnelConfig, WrongTunnels,
    testing::Values(
        WrongTunnel{"tunnel = \"ipip\"", "port.tunnel: \"ipip\" is not known: give \"gre\""},
        WrongTunnel{"tunnel = \"gre\"", "port.tunnel: has no customers: give"},
        WrongTunnel{"customers = [\"172.17.0.0/18\"]", "port.customers: need a tunnel: give"},
        WrongTunnel{CUSTOMERS("[]"), "port.customers: is empty: give a list"},
        WrongTunnel{CUSTOMERS("[7]"), "port.customers: is an integer: give \"172.17.0.0/18\", {"},
        WrongTunnel{CUSTOMERS("[\"2001:db8::/64\"]"), "is no IPv4 prefix: give one like"},
        WrongTunnel{CUSTOMERS("[\"172.17.0.1/18\"]"),
                    "has bits set behind its prefix: give 172.17.0.0"},
        WrongTunnel{CUSTOMERS("[\"0.0.0.0/7\"]"), "is too much: give prefixes of 9 to 32 bits"},
        WrongTunnel{CUSTOMERS("[{ address = \"172.17.0.0/18\", key = 1 }]"),
                    "more than one address: a key needs a customer of its own"},
        WrongTunnel{CUSTOMERS("[{ name = \"c1\" }]"), "port.customers: have no address: give"},
        WrongTunnel{CUSTOMERS("[{ name = \"any\", address = \"172.17.0.9\" }]"),
                    "\"any\" cannot be a name"},
        WrongTunnel{
            CUSTOMERS("[{ name = \"a\", address = \"172.17.0.9\" }, { name = \"a\", address = "
                      "\"172.17.0.8\" }]"),
            "\"a\" is there already, on line"},
        WrongTunnel{CUSTOMERS("[\"172.16.0.0/16\"]"), "contains millrace's own address 172.16.0.1"},
        WrongTunnel{CUSTOMERS("[\"172.17.0.0/16\", \"172.17.8.9\"]"), "overlaps \"172.17.0.0/16\""},
        WrongTunnel{CUSTOMERS("[\"172.17.0.0\", \"172.17.0.0/16\"]"), "overlaps \"172.17.0.0\""},
        WrongTunnel{
            CUSTOMERS("[\"172.17.8.9\", \"172.16.9.9\", \"172.18.0.0\", \"172.17.0.0/16\"]"),
            "overlaps \"172.17.8.9\""},
        WrongTunnel{CUSTOMERS("[\"16.0.0.0/9\", \"17.0.0.0/9\"]"), "are more than 16777215"}));

TEST(VlanConfig, EachVlanIsACustomer) {
  const auto config = read_all(port_with(
      "customers = [{ vlan = \"100-3999\" }, { name = \"c17\", vlan = 17 }, { vlan = \"18\" }]"));
  ASSERT_TRUE(config) << config.error().message;
  const Customers& all = *config->live.customers;
  EXPECT_EQ(all.size(), 3902U);
  EXPECT_EQ(all.find(0, 100), 1U);
  EXPECT_EQ(all.find(0, 3999), 3900U);
  EXPECT_EQ(all.name_of(2), "access.101");
  EXPECT_EQ(all.name_of(3901), "c17");
  EXPECT_EQ(all.name_of(3902), "access.18");
  EXPECT_TRUE(config->live.ports[0].has_customer_vlans);
  EXPECT_TRUE(config->live.v4.own.empty()) << "the address is for customers only";
  EXPECT_EQ(config->live.v4.of_customers.own.size(), 1U);
}

TEST(VlanConfig, PortsOfCustomersHaveAddressesAndRoutesOfTheirOwn) {
  const auto port = [](const std::string& name, const std::string& keys) {
    return "[[port]]\nname = \"" + name + "\"\ndevice = \"af_packet:" + keys + "\n";
  };
  const std::string inside = "addresses = [\"10.0.0.1/16\"]\ncustomers = [{ vlan = \"2-9\" }]\n";
  const auto route = [](const std::string& more) {
    return "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.0.0.9\"\n" + more;
  };
  const std::string ports = port("a", "eth0\"\n" + inside) + port("b", "eth1\"\n" + inside) +
                            port("c", "eth0\"\naddresses = [\"10.0.0.1/24\"]") +
                            port("d", "eth0\"\nvlan = 10\naddresses = [\"10.2.0.1/24\"]");
  const auto config =
      read_all(ports + route("port = \"a\"\n") + route("port = \"b\"\n") + route(""));
  ASSERT_TRUE(config) << config.error().message;
  const HostAddresses<AddressV4>& v4 = config->live.v4;
  ASSERT_EQ(v4.own.size(), 2U);
  EXPECT_EQ(v4.own[0].link, 2U);
  ASSERT_EQ(v4.routes.size(), 1U);
  EXPECT_EQ(v4.routes[0].link, 2U) << "not by a port of customers";
  ASSERT_EQ(v4.of_customers.routes.size(), 2U);
  EXPECT_EQ(v4.of_customers.routes[1].link, 1U);
  for (const std::string& doubt : doubts(*config))
    EXPECT_FALSE(doubt.contains("same network")) << doubt;
}

/// Ports, of which the first has the device af_packet:eth0, and the problem that they are.
class WrongVlans : public testing::TestWithParam<WrongTunnel> {};

TEST_P(WrongVlans, AreTold) {
  const auto config =
      read_all(std::string("[[port]]\nname = \"access\"\ndevice = \"af_packet:eth0\"\n") +
               GetParam().keys + "\n");
  ASSERT_FALSE(config);
  EXPECT_TRUE(config.error().message.contains(GetParam().problem)) << config.error().message;
}

#define ADDRESS "addresses = [\"10.0.0.1/16\"]\n"
#define VLANS(all) ADDRESS "customers = [" all "]\n"
#define OTHER(keys) "[[port]]\nname = \"other\"\ndevice = \"af_packet:eth0\"\n" keys
INSTANTIATE_TEST_SUITE_P(
    VlanConfig, WrongVlans,
    testing::Values(
        WrongTunnel{VLANS("{ vlan = 0 }"),
                    "port.customers.vlan: \"0\" is no VLAN: give one of 1 to"},
        WrongTunnel{VLANS("{ vlan = 4095 }"), "\"4095\" is no VLAN"},
        WrongTunnel{VLANS("{ vlan = -5 }"), "\"-5\" is no VLAN"},
        WrongTunnel{VLANS("{ vlan = \"9-8\" }"), "\"9-8\" is no VLAN"},
        WrongTunnel{VLANS("{ vlan = \"1-2-3\" }"), "\"1-2-3\" is no VLAN"},
        WrongTunnel{VLANS("{ vlan = \"1-\" }"), "\"1-\" is no VLAN"},
        WrongTunnel{VLANS("{ vlan = true }"), "port.customers.vlan: is a boolean: give one of"},
        WrongTunnel{VLANS("{ vlan = \"8-9\" }, { vlan = 9 }"),
                    "the VLAN 9 overlaps 8-9: each VLAN is"},
        WrongTunnel{VLANS("{ vlan = 9 }, \"172.17.0.0/18\""),
                    "have VLANs on this port, but one has not"},
        WrongTunnel{VLANS("{ vlan = 9, key = 7 }"), "the VLAN 9 is no tunnel: leave out key"},
        WrongTunnel{VLANS("{ vlan = 9, address = \"172.17.0.9\" }"),
                    "the VLAN 9 is no tunnel: leave out address"},
        WrongTunnel{VLANS("{ vlan = \"8-9\", key = 7 }"), "the VLANs 8-9 are no tunnel: leave"},
        WrongTunnel{VLANS("{ vlan = \"8-9\", name = \"c\" }"),
                    "the VLANs 8-9 are more than one: a name"},
        WrongTunnel{VLANS("{ vlan = 9, name = \"access.8\" }"),
                    "\"access.8\" cannot be a name, as"},
        WrongTunnel{VLANS("{ vlan = 9 }") "tunnel = \"gre\"",
                    "have tunnels on this port, but one has a VLAN"},
        WrongTunnel{"customers = [{ vlan = 9 }]",
                    "port.customers: have nobody to send to: give the port"},
        WrongTunnel{"addresses = [\"10.0.0.1/16\", \"fd00::1/64\"]\ncustomers = [{ vlan = 9 }]",
                    "port.addresses: fd00::1/64 is of no use, as customers in VLANs have no IPv6"},
        WrongTunnel{VLANS("{ vlan = 9 }") "vlan = 8",
                    "port.vlan: is not for a port with customers in VLANs"},
        WrongTunnel{VLANS("{ vlan = 9 }") "kernel = \"mr0\"",
                    "port.kernel: is not for a port with"},
        WrongTunnel{VLANS("{ vlan = 9 }") "neighbours = [{ address = \"10.0.0.5\", mac = "
                                          "\"02:00:00:00:00:01\" }]",
                    "port.neighbours: is not for a port with customers in VLANs"},
        WrongTunnel{VLANS("{ vlan = \"7-9\" }") OTHER("vlan = 8"),
                    "port.vlan: 8 is the VLAN of another port of \"eth0\", on line 6: give each"},
        WrongTunnel{
            "vlan = 8\n" ADDRESS OTHER(VLANS("{ vlan = \"7-9\" }")),
            "port.customers: 8 is the VLAN of another port of \"eth0\", on line 5: give each"},
        WrongTunnel{
            VLANS("{ vlan = 7 }") OTHER(VLANS("{ vlan = 8 }")),
            "port.customers: are in VLANs of \"eth0\", which has a port with such customers"},
        WrongTunnel{VLANS("{ vlan = 7 }") "[[route]]\nprefix = \"10.8.0.0/16\"\nvia = \"10.0.0.9\"",
                    "10.0.0.9 is in no port's network: give port, too"},
        WrongTunnel{VLANS("{ vlan = 7 }") "[[route]]\nprefix = \"fd00::/16\"\nport = \"access\"",
                    "route.port: \"access\" has customers in VLANs, who have no IPv6"}));

const std::string kTunnels =
    port_with(CUSTOMERS("[\"172.17.0.0/24\", { name = \"c17\", address = \"172.18.0.9\" }]"));
const std::string kPools =
    "[[nat.pool]]\nname = \"a\"\naddresses = [\"198.51.100.1\"]\n"
    "[[nat.pool]]\nname = \"b\"\naddresses = [\"198.51.100.2\"]\n";

std::string rule(const std::string& keys) {
  return "[[nat.rule]]\nsource = [\"10.0.0.0/8\"]\n" + keys + "\n";
}

TEST(TunnelConfig, RulesOfNatAreForCustomers) {
  const auto config = read_all(kPools + kTunnels + rule("pool = \"a\"\ncustomers = \"any\"") +
                               rule("pool = \"b\"\ncustomers = [\"c17\", \"172.17.0.5\"]"));
  ASSERT_TRUE(config) << config.error().message;
  const auto& nat = dynamic_cast<const NatSettings&>(*config->function);
  const auto home = *parse_address<AddressV4>("10.1.2.3");
  EXPECT_EQ(nat.rule_of(0, home), nullptr);
  ASSERT_NE(nat.rule_of(1, home), nullptr);
  EXPECT_EQ(nat.rule_of(1, home)->pool, 0);
  EXPECT_EQ(nat.rule_of(6, home)->pool, 1);
  EXPECT_EQ(nat.rule_of(7, home)->pool, 0);
  EXPECT_EQ(nat.rule_of(257, home)->pool, 1);
  EXPECT_EQ(nat.name_of(257), "c17");
  EXPECT_EQ(nat.customer_named("172.17.0.5"), 6U);
  EXPECT_FALSE(nat.customer_named("10.1.2.3")) << "no rule is for packets without a tunnel";
}

/// Keys of a port, and its only problem.
class OneMistake : public testing::TestWithParam<WrongTunnel> {};

TEST_P(OneMistake, IsToldInOneLine) {
  const auto config =
      read_all(port_with(GetParam().keys) + kPools + rule("pool = \"a\"\ncustomers = \"any\"") +
               rule("pool = \"b\"\ncustomers = [\"c17\", \"172.17.0.5\"]") +
               "[[nat.forward]]\npublic = \"198.51.100.1:80/tcp\"\n"
               "customer = \"c17\"\ninside = \"10.0.0.5\"\n");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message.find(GetParam().problem), std::string("f.toml:N: ").size());
  EXPECT_EQ(config.error().message.find('\n'), std::string::npos) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    TunnelConfig, OneMistake,
    testing::Values(
        WrongTunnel{"tunnel = 7\ncustomers = [\"172.17.0.0/18\"]", "port.tunnel: is an integer"},
        WrongTunnel{"tunnel = \"ipip\"\ncustomers = [\"172.17.0.0/18\"]",
                    "port.tunnel: \"ipip\" is"},
        WrongTunnel{"customers = [\"172.17.0.0/18\"]", "port.customers: need a tunnel"},
        WrongTunnel{"customers = []", "port.customers: is empty"},
        WrongTunnel{"customers = [7]", "port.customers: is an integer"},
        WrongTunnel{"customers = [{ vlan = true }]", "port.customers.vlan: is a boolean"},
        WrongTunnel{"customers = [{ vlna = 9 }]", "port.customers.vlna: unknown key"},
        WrongTunnel{CUSTOMERS("[{ adress = \"172.17.0.9\" }]"), "port.customers.adress: unknown"},
        WrongTunnel{CUSTOMERS("[{ address = 7 }]"), "port.customers.address: is an integer"},
        WrongTunnel{CUSTOMERS("[\"16.0.0.0/9\", \"17.0.0.0/9\", \"18.0.0.0/9\", \"19.0.0.0/32\"]"),
                    "port.customers: are more than 16777215"},
        WrongTunnel{CUSTOMERS("[{ name = \"c17\\n\", address = \"172.17.0.9\" }]"),
                    "port.customers.name: \"c17 \" has control characters: give"}));

TEST(TunnelConfig, CustomersThatAreThereTwiceAreNotTooMany) {
  const auto config =
      read_all(port_with(CUSTOMERS("[\"16.0.0.0/9\", \"17.0.0.0/9\", \"17.0.0.0/9\"]")));
  ASSERT_FALSE(config);
  EXPECT_TRUE(config.error().message.contains(
      "f.toml:7: port.customers: \"17.0.0.0/9\" overlaps \"17.0.0.0/9\": each tunnel"))
      << config.error().message;
}

TEST(TunnelConfig, CustomersNeedAFunctionThatServesThem) {
  const std::string wrong =
      ": port.customers: no function serves the customers of \"access\": name \"nat\" in function "
      "or "
      "chain, or leave customers (and tunnel) out";
  const std::string tunnels = port_with(CUSTOMERS("[\"172.17.0.0/18\"]"));
  const std::string vlans = port_with("customers = [{ vlan = 9 }]");
  for (const std::string chain : {"function = \"forward\"\n", "chain = [\"firewall\"]\n", "\n"}) {
    EXPECT_EQ(read_all(tunnels, chain).error().message, "f.toml:7" + wrong) << chain;
    EXPECT_EQ(read_all(vlans, chain).error().message, "f.toml:6" + wrong) << chain;
  }
  for (const std::string chain : {"function = \"nat\"\n", "chain = [\"firewall\", \"nat\"]\n"}) {
    EXPECT_TRUE(read_all(tunnels, chain)) << chain;
    EXPECT_TRUE(read_all(vlans, chain)) << chain;
  }
}

TEST(TunnelConfig, DoubtsRoutesThatLeadElsewhere) {
  const std::string rest = rule("pool = \"a\"\ncustomers = \"any\"");
  const auto doubts_with = [&](const std::string& more) {
    std::string all;
    for (const auto& one : doubts(read_all(kPools + kTunnels + rest + more).value()))
      all += one + "\n";
    return all;
  };
  const std::string other =
      "[[port]]\nname = \"internet\"\ndevice = \"ring\"\naddresses = [\"192.0.2.1/24\"]\n"
      "[[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"192.0.2.2\"\n";
  const std::string right = "[[route]]\nprefix = \"172.16.0.0/14\"\nvia = \"172.16.0.2\"\n";
  EXPECT_TRUE(doubts_with("").contains("172.17.0.0/24 have no route")) << doubts_with("");
  EXPECT_TRUE(doubts_with(other).contains("have their route by the port internet"));
  EXPECT_TRUE(doubts_with(other).contains("give a [[route]] with port = \"access\""))
      << doubts_with(other);
  EXPECT_FALSE(doubts_with(other + right).contains("far ends")) << doubts_with(other + right);
}

struct WrongRule {
  const char* rules;
  const char* problem;

  friend std::ostream& operator<<(std::ostream& to, const WrongRule& one) {
    return to << one.rules;
  }
};
class WrongRules : public testing::TestWithParam<WrongRule> {};

TEST_P(WrongRules, AreTold) {
  const auto config =
      read_all(kPools + kTunnels + rule(std::string("pool = \"a\"\n") + GetParam().rules));
  ASSERT_FALSE(config);
  EXPECT_TRUE(config.error().message.contains(GetParam().problem)) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    TunnelConfig, WrongRules,
    testing::Values(
        WrongRule{"customers = \"c18\"", "nat.rule.customers: no customer is called \"c18\""},
        WrongRule{"customers = \"any\"\nexempt = [\"192.0.2.0/24\"]",
                  "nat.rule.exempt: replies would not find these customers"},
        WrongRule{"customers = \"any\"\ncustomer_prefix = 32",
                  "nat.rule.customer_prefix: is for customers without tunnels"},
        WrongRule{"customers = \"any\"\n[[nat.rule]]\npool = \"a\"\nsource = \"10.0.0.0/8\"\n"
                  "customers = \"any\"",
                  "10.0.0.0/8 is there already"}));

}  // namespace
}  // namespace millrace
