#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "config/config.h"
#include "core/address.h"
#include "function/nat/settings.h"

namespace millrace {
namespace {

Result<Config> read_all(const std::string& text) {
  return parse_config(text, "f.toml", {{"race"}, {"sharded"}, {"wheel"}});
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
        WrongTunnel{CUSTOMERS("[7]"), "port.customers: is an integer: give \"172.17.0.0/18\", or"},
        WrongTunnel{CUSTOMERS("[\"2001:db8::/64\"]"), "is no IPv4 prefix: give one like"},
        WrongTunnel{CUSTOMERS("[\"172.17.0.1/18\"]"),
                    "has bits set behind its prefix: give 172.17.0.0"},
        WrongTunnel{CUSTOMERS("[\"0.0.0.0/7\"]"), "is too much: give prefixes of 9 to 32 bits"},
        WrongTunnel{CUSTOMERS("[{ address = \"172.17.0.0/18\", key = 1 }]"),
                    "more than one address: a key needs a customer of its own"},
        WrongTunnel{CUSTOMERS("[{ name = \"c1\" }]"), "port.customers.address: is missing"},
        WrongTunnel{CUSTOMERS("[{ name = \"any\", address = \"172.17.0.9\" }]"),
                    "\"any\" cannot be a name"},
        WrongTunnel{
            CUSTOMERS("[{ name = \"a\", address = \"172.17.0.9\" }, { name = \"a\", address = "
                      "\"172.17.0.8\" }]"),
            "\"a\" is there already, on line"},
        WrongTunnel{CUSTOMERS("[\"172.16.0.0/16\"]"), "contains millrace's own address 172.16.0.1"},
        WrongTunnel{CUSTOMERS("[\"172.17.0.0/16\", \"172.17.8.9\"]"), "overlaps \"172.17.0.0/16\""},
        WrongTunnel{CUSTOMERS("[\"16.0.0.0/9\", \"17.0.0.0/9\"]"), "are more than 16777215"}));

const std::string kTunnels =
    port_with(CUSTOMERS("[\"172.17.0.0/24\", { name = \"c17\", address = \"172.18.0.9\" }]"));
const std::string kPools =
    "function = \"nat\"\n[[nat.pool]]\nname = \"a\"\naddresses = [\"198.51.100.1\"]\n"
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
                  "nat.rule.exempt: replies would not find a customer behind a tunnel"},
        WrongRule{"customers = \"any\"\ncustomer_prefix = 29",
                  "nat.rule.customer_prefix: is for customers without tunnels"},
        WrongRule{"customers = \"any\"\n[[nat.rule]]\npool = \"a\"\nsource = \"10.0.0.0/8\"\n"
                  "customers = \"any\"",
                  "10.0.0.0/8 is there already"}));

}  // namespace
}  // namespace millrace
