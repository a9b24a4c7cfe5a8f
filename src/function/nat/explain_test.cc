// Tests how NAT names its customers, and what it says of packets.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "function/chained.h"
#include "function/command_done.h"
#include "function/firewall/test_settings.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

KeyV4 key(char from, char to, std::uint16_t port = 80) {
  return {.source = TestLine<KeyV4>::host(from),
          .destination = TestLine<KeyV4>::host(to),
          .source_port = 1000,
          .destination_port = port,
          .protocol = kProtocolUdp};
}

class NatExplainTest : public NatTest {
 protected:
  void use_live(const std::string& keys, const std::string& of_rule = "") {
    const auto [settings, problems] = read(text_of(keys, of_rule));
    ASSERT_EQ(problems, "");
    FunctionRun run;
    run.is_live = true;
    deployment_ = *settings->kind().deploy(settings, run);
    line_ = std::make_unique<Line>(deployment_->make(0));
  }
  Explained explain(const AnyKey& of) const {
    return deployment_->view()->explain(of, nullptr, false);
  }
  Json customer(const std::string& name) const {
    const std::vector<std::pair<std::string, std::string>> given{{"customer", name}};
    const auto is = deployment_->command("/nat/customer", given, {});
    return is ? is->result : Json();
  }
};

TEST_F(NatExplainTest, NamesACustomerOfSeveralAddressesByHisPrefix) {
  use_live("block_size = 64\nsessions_per_customer = 3", "customer_prefix = 30");
  const std::string end = public_end("f:1", "z:80");  // 10.0.0.6
  EXPECT_EQ(public_end("g:1", "z:80").substr(0, 1), end.substr(0, 1));
  const Json is = customer("10.0.0.5");
  EXPECT_EQ(is["customer"], "10.0.0.4/30");
  ASSERT_EQ(is["blocks"].size(), 1U);
  EXPECT_EQ(is["blocks"][0]["sessions"], 2);
  EXPECT_EQ(is["blocks"][0]["most_sessions"], 3);
  EXPECT_EQ(is["blocks"][0]["most_blocks"], 4);
  for (const char* const same : {"10.0.0.4", "10.0.0.7", "10.0.0.4/30", "10.0.0.6/30"})
    EXPECT_EQ(customer(same), is) << same;
  for (const char* const none : {"10.0.0.4/31", "10.0.0.4/33", "10.0.0.4/", "10.0.0.200/30", "z"})
    EXPECT_TRUE(customer(none).is_null()) << none;
  const auto at = static_cast<std::uint16_t>(std::stoi(end.substr(2)));
  EXPECT_NE(explain(key('z', end[0], at)).why.find(" of 10.0.0.4/30, "), std::string::npos);
  const auto pools = deployment_->command("/nat/pools", {}, {});
  EXPECT_EQ(pools->result[0]["nearest"][0]["customer"], "10.0.0.4/30");
}

// The customer of a source that is a part of his prefix.
TEST_F(NatExplainTest, NamesACustomerWhoseFirstAddressIsNobodys) {
  const auto [settings, problems] = read(
      "[[nat.pool]]\nname = \"p\"\naddresses = \"10.0.0.16/30\"\n[[nat.rule]]\n"
      "source = \"10.0.0.5\"\npool = \"p\"\ncustomer_prefix = 31\n");
  ASSERT_EQ(problems, "");
  deployment_ = *settings->kind().deploy(settings, {});
  EXPECT_EQ(customer("10.0.0.5")["customer"], "10.0.0.4/31");
  EXPECT_EQ(customer("10.0.0.4/31")["customer"], "10.0.0.4/31");
  EXPECT_TRUE(customer("10.0.0.4").is_null());
  EXPECT_TRUE(customer("10.0.0.6/31").is_null());
}

TEST_F(NatExplainTest, FindsWhoWouldBeRefused) {
  use_live(
      "ports = \"1024-1151\"\nblock_size = 64\nblocks_per_customer = 1\n"
      "sessions_per_customer = 64");
  EXPECT_EQ(explain(key('a', 'z')).verdict, Verdict::tracked);
  for (int n = 0; n < 64; ++n) send("a:" + std::to_string(2000 + n), "z:80");
  EXPECT_EQ(explain(key('a', 'z')).verdict, Verdict::customer_limit);
  EXPECT_EQ(explain(key('b', 'z')).verdict, Verdict::tracked);
  // All 8 blocks of the 4 addresses get a customer, one with all his ports.
  use_live("ports = \"1024-1151\"\nblock_size = 64\nblocks_per_customer = 1");
  for (int n = 0; n < 64; ++n) send("a:" + std::to_string(2000 + n), "z:80");
  EXPECT_EQ(explain(key('a', 'z')).verdict, Verdict::no_port);
  KeyV4 known = key('a', 'y');
  known.source_port = 2007;
  EXPECT_EQ(explain(known).verdict, Verdict::tracked) << "this endpoint has its port";
  for (const char other : std::string("bcdefg")) send(std::string{other} + ":1", "z:80");
  EXPECT_EQ(explain(key('i', 'z')).verdict, Verdict::tracked) << "a block is free";
  send("h:1", "z:80");
  EXPECT_EQ(explain(key('i', 'z')).verdict, Verdict::no_port);
  EXPECT_EQ(public_end("i:1000", "z:80"), "no_port");
  EXPECT_EQ(explain(key('h', 'z')).verdict, Verdict::tracked);
}

TEST_F(NatExplainTest, TellsAFileFromARun) {
  use("");
  EXPECT_NE(explain(key('z', 'p', 2000)).why.find("the file does not say who"), std::string::npos);
  use_live("");
  EXPECT_NE(explain(key('z', 'p', 2000)).why.find("that nobody has"), std::string::npos);
  EXPECT_EQ(explain(key('z', 'p', 2000)).verdict, Verdict::no_mapping);
}

// NAT leaves the host its own packets, and explain says so.
TEST_F(NatExplainTest, LeavesTheHostItsAddresses) {
  for (const char own : std::string("opqrs"))
    v4_.own.push_back({.address = TestLine<KeyV4>::host(own)});
  use_live("filtering = \"endpoint-independent\"");
  const std::string end = public_end("a:1", "z:80");
  const char whose = end[0];
  const auto at = static_cast<std::uint16_t>(std::stoi(port(end)));
  for (const char from : {'b', 'z'}) {
    EXPECT_FALSE(explain(key(from, 'o')).side) << from;
    EXPECT_FALSE(explain(key(from, whose, 1000)).side) << from;
  }
  EXPECT_EQ(inside_end("b:1000", "o:80"), "no_service");
  EXPECT_TRUE(explain(key('b', whose, at)).side) << "another customer has it";
  EXPECT_EQ(explain(key('z', whose, at)).verdict, Verdict::no_mapping);
}

TEST_F(NatExplainTest, SaysWhatLacksAPublicSource) {
  around_.customers = std::make_shared<const Customers>(
      std::vector<CustomerGroup>{{.link = 0, .vlans = {100, 101}, .port = "access"}});
  use_live("", "customers = \"any\"");
  KeyV4 of = key('a', 'z');
  EXPECT_NE(explain(of).why.find("--customer"), std::string::npos) << explain(of).why;
  EXPECT_FALSE(explain(of).side);
  of.set_zone(1);
  EXPECT_EQ(explain(of).verdict, Verdict::tracked);
  of.source = TestLine<KeyV4>::host('x');
  EXPECT_EQ(explain(of).verdict, Verdict::untranslated);
  KeyV6 v6{.protocol = kProtocolUdp};
  EXPECT_FALSE(explain(v6).side) << "it passes";
  v6.set_zone(1);
  EXPECT_EQ(explain(v6).verdict, Verdict::untranslated);
}

TEST_F(NatExplainTest, AsksForTheCustomerOfAForward) {
  around_.customers = std::make_shared<const Customers>(
      std::vector<CustomerGroup>{{.link = 0, .vlans = {100, 101}, .port = "access"}});
  const std::string text =
      text_of("",
              "customers = \"any\"\n[[nat.forward]]\npublic = \"10.0.0.16:80/tcp\"\n"
              "inside = \"10.0.0.1\"\n");
  EXPECT_NE(read(text).second.find("say with the key customer"), std::string::npos);
  EXPECT_EQ(read(text + "customer = \"access.101\"\n").second, "");
}

TEST_F(NatExplainTest, AsksForDoubleBrackets) {
  EXPECT_EQ(read("[nat.pool]\nname = \"p\"\n").second,
            "f:1: nat.pool: is a table: give one [[nat.pool]] for each, in double brackets");
}

// NAT keeps the destination, so the firewall's rule is known.
TEST_F(NatExplainTest, NamesTheRuleOfTheFirewall) {
  const auto [rules, wrong] = test::read_firewall(
      "[[firewall.rule]]\nname = \"no\"\ndestination = \"10.0.0.26\"\naction = \"reject\"\n"
      "[[firewall.rule]]\nname = \"yes\"\naction = \"accept\"\n",
      around_);
  ASSERT_EQ(wrong, "");
  const auto both = chained({rules, read(text_of("")).first});
  deployment_ = *both->kind().deploy(both, {});
  const Explained no = explain(key('a', 'z'));
  EXPECT_EQ(no.verdict, Verdict::rejected);
  EXPECT_NE(no.why.find("the rule \"no\" rejects it"), std::string::npos) << no.why;
  const Explained yes = explain(key('a', 'y'));
  EXPECT_EQ(yes.verdict, Verdict::tracked);
  EXPECT_NE(yes.why.find("gets a public port"), std::string::npos) << yes.why;
  EXPECT_NE(yes.why.find("the rule \"yes\" accepts it"), std::string::npos) << yes.why;
}

}  // namespace
}  // namespace millrace
