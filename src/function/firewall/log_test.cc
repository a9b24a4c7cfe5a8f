// Tests the firewall's log: which packets are events, what an event says, and how the log is
// limited.
#include "function/firewall/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "function/balance/settings.h"
#include "function/chained.h"
#include "function/firewall/test_settings.h"
#include "function/kind.h"
#include "function/test_line.h"

namespace millrace {
namespace {

const std::string kLogged = R"([[zone]]
name = "in\\side"
prefixes = ["10.0.0.1", "fd00::1"]
[[firewall.rule]]
name = "web"
protocol = "tcp"
destination_ports = "80"
action = "accept"
log = true
[[firewall.rule]]
name = "quiet"
protocol = "tcp"
destination_ports = "81"
action = "accept"
[[firewall.rule]]
name = "no"
protocol = "tcp"
destination_ports = "82"
action = "reject"
log = true
)";

template <class K>
class FirewallLogTest : public testing::Test {
 protected:
  using Line = TestLine<K>;
  static constexpr bool kV4 = Line::kV4;
  static constexpr std::uint8_t kIcmp = kV4 ? kProtocolIcmp : kProtocolIcmpV6;

  std::shared_ptr<const FunctionSettings> settings(const std::string& text) {
    auto [is, problems] = test::read_firewall(text, around_.is);
    EXPECT_EQ(problems, "");
    return is;
  }
  void use(const std::shared_ptr<const FunctionSettings>& is) {
    deployment = *is->kind().deploy(is, {});
    line = std::make_unique<Line>(deployment->make(0));
    reader = deployment->log("/firewall/log", false);
  }
  void reload(const std::string& text) {
    ASSERT_TRUE(deployment->update(settings(text), {}, [](const auto& step) {
      step(0);
      return true;
    }));
  }
  void send(const std::string& from, const std::string& to, std::uint8_t flags = Line::kSyn,
            std::uint8_t protocol = kProtocolTcp) {
    line->send({from, to, protocol, flags});
  }
  /// Returns the events since the last call.
  std::vector<Json> read(LogReader& from) {
    std::vector<Json> all;
    for (std::string text = "?"; !text.empty();) {
      text.clear();
      from.append(text);
      std::istringstream lines(text);
      for (std::string one; std::getline(lines, one);) all.push_back(Json::parse(one));
    }
    return all;
  }
  std::vector<Json> read() { return read(*reader); }
  std::uint64_t count(const std::string& rule, const std::string& member) {
    return test::rule_count(*deployment, rule, member);
  }
  static std::string host(char name) { return to_string(Line::host(name)); }

  test::Around around_;
  std::unique_ptr<FunctionDeployment> deployment;
  std::unique_ptr<Line> line;
  std::unique_ptr<LogReader> reader;
};
using LoggedFamilies = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(FirewallLogTest, LoggedFamilies);

TYPED_TEST(FirewallLogTest, HasEachConnectionOnce) {
  this->use(this->settings(kLogged));
  this->send("a:1", "b:80");
  this->send("a:1", "b:80");
  this->send("b:80", "a:1", TestFixture::Line::kAck);
  this->send("a:2", "b:81");
  this->send("a:3", "b:82");
  this->send("a:4", "b:83");
  const std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 2U);
  Json accepted = all[0];
  EXPECT_EQ(accepted["time"].get<std::string>().size(), 24U);
  accepted.erase("time");
  const std::string length = this->kV4 ? "40" : "60";
  EXPECT_EQ(accepted.dump(),
            R"({"rule":"web","action":"accept","verdict":"tracked","from":"in\\side",)"
            R"("to":null,"interface":null,"protocol":"tcp","source":")" +
                this->host('a') + R"(","destination":")" + this->host('b') +
                R"(","source_port":1,"destination_port":80,"length":)" + length +
                R"(,"worker":0,"missed":0})");
  EXPECT_EQ(all[1]["rule"], "no");
  EXPECT_EQ(all[1]["action"], "reject");
  EXPECT_EQ(all[1]["verdict"], "rejected");
  EXPECT_EQ(all[1]["source_port"], 3);
  EXPECT_EQ(this->count("web", "logged"), 1U);
  EXPECT_EQ(this->count("no", "logged"), 1U);
  EXPECT_EQ(this->count("default", "logged"), 0U);
}

TYPED_TEST(FirewallLogTest, HasTheDefaultsToo) {
  this->use(this->settings("[firewall]\nlog = true\n" + kLogged));
  this->send("a:1", "b:83");
  const std::string message = ":" + std::to_string((this->kV4 ? 8 : 128) << 8 | 5);
  this->send("a" + message, "b" + message, 0, TestFixture::kIcmp);
  const std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["rule"], "default");
  EXPECT_EQ(all[0]["verdict"], "denied");
  EXPECT_EQ(all[1]["icmp_type"], this->kV4 ? 8 : 128);
  EXPECT_EQ(all[1]["icmp_code"], 5);
  EXPECT_FALSE(all[1].contains("source_port"));
}

// The line gives these connections up after the firewall has accepted them.
TYPED_TEST(FirewallLogTest, LeavesOutWhatIsNotOpened) {
  this->use(this->settings(kLogged));
  this->send("a:80", "a:80");
  this->line->replies_full = true;
  this->send("a:1", "b:80");
  this->line->replies_full = false;
  this->send("a:2", "b:80");
  const std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["source_port"], 2);
  EXPECT_EQ(all[0]["missed"], 0);
}

TYPED_TEST(FirewallLogTest, LimitsEachRuleAndCountsTheRest) {
  this->use(this->settings("[firewall]\nlog = true\nlog_rate = \"10/s\"\n" + kLogged));
  this->line->at(1000);
  for (int n = 0; n < 30; ++n) this->send("a:1", "b:83");
  this->send("a:1", "b:80");
  this->line->at(1100);
  this->send("a:1", "b:83");
  const std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 12U);
  EXPECT_EQ(all[10]["rule"], "web") << "a flood hides no other rule";
  EXPECT_EQ(all[10]["missed"], 20);
  EXPECT_EQ(all[11]["rule"], "default");
  EXPECT_EQ(all[11]["missed"], 0);
  EXPECT_EQ(this->count("default", "logged"), 11U);
  EXPECT_EQ(this->count("default", "not_logged"), 20U);
  EXPECT_EQ(this->count("default", "refused"), 31U);
}

TYPED_TEST(FirewallLogTest, SaysThatARulesLimitRefused) {
  std::string limited = kLogged;
  limited.replace(limited.find("log = true"), 0, "limit = { rate = \"1/h\", burst = 1 }\n");
  this->use(this->settings(limited));
  this->send("a:1", "b:80");
  this->send("a:2", "b:80");
  const std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1]["verdict"], "rate_limit");
  EXPECT_EQ(all[1]["action"], "accept");
}

TYPED_TEST(FirewallLogTest, EventsKeepTheirNamesOverReloads) {
  this->use(this->settings(kLogged));
  this->send("a:1", "b:80");
  const std::string renamed = R"([[zone]]
name = "other"
prefixes = ["10.0.0.0/8", "fd00::/8"]
[firewall]
log = true
)";
  this->reload(renamed);
  this->send("a:2", "b:80");
  std::vector<Json> all = this->read();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["rule"], "web");
  EXPECT_EQ(all[0]["from"], "in\\side");
  EXPECT_EQ(all[1]["rule"], "default");
  EXPECT_EQ(all[1]["from"], "other");
  // Names are kept for some reloads.
  this->send("a:3", "b:80");
  for (int n = 0; n < 8; ++n) this->reload(renamed);
  this->send("a:4", "b:80");
  all = this->read();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["source_port"], 4);
  EXPECT_EQ(all[0]["missed"], 1);
}

TYPED_TEST(FirewallLogTest, ManyMayRead) {
  this->use(this->settings("[firewall]\nlog = true\nlog_rate = \"1000000/s\"\n"));
  for (int n = 0; n < 100; ++n) this->send("a:1", "b:83");
  const auto only_new = this->deployment->log("/firewall/log", true);
  this->send("a:7", "b:83");
  EXPECT_EQ(this->read().size(), 101U);
  const std::vector<Json> all = this->read(*only_new);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["source_port"], 7);
  EXPECT_EQ(all[0]["missed"], 0);
  // Nobody reads: the newest stay.
  constexpr std::size_t kRoom = EventRing<FirewallEvent>::kRoom;
  for (std::size_t n = 0; n < kRoom + 10; ++n) this->send("a:" + std::to_string(1 + n), "b:83");
  const std::vector<Json> newest = this->read();
  ASSERT_EQ(newest.size(), kRoom);
  EXPECT_EQ(newest.front()["source_port"], 11);
  EXPECT_EQ(newest.front()["missed"], 10);
  EXPECT_EQ(newest.back()["source_port"], kRoom + 10);
}

class FirewallLogChainTest : public FirewallLogTest<KeyV4>,
                             public testing::WithParamInterface<bool> {};

// The parameter is true if the load balancer is the first function.
TEST_P(FirewallLogChainTest, HasBothDestinations) {
  BalanceSettings balance;
  balance.services.v4 = {{.address = Line::host('v'),
                          .port = 80,
                          .protocol = kProtocolTcp,
                          .scheduler = "round-robin",
                          .backends = {{.address = Line::host('b'), .port = 8000}}}};
  std::vector<std::shared_ptr<const FunctionSettings>> all{
      settings("[firewall]\nlog = true\n[[firewall.rule]]\nname = \"one\"\nsource = \"10.0.0.1\"\n"
               "action = \"accept\"\nlog = true\n"),
      std::make_shared<const BalanceSettings>(std::move(balance))};
  if (GetParam()) std::swap(all.front(), all.back());
  use(chained(std::move(all)));
  send("a:1", "v:80");
  send("c:1", "v:80");
  const std::vector<Json> events = read();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["rule"], "one");
  EXPECT_EQ(events[1]["verdict"], "denied");
  for (const Json& event : events) {
    EXPECT_EQ(event["destination"], host('v'));
    EXPECT_EQ(event["destination_port"], 80);
    EXPECT_EQ(event.at("translated_destination"), host('b'));
    EXPECT_EQ(event.at("translated_destination_port"), 8000);
  }
}
INSTANTIATE_TEST_SUITE_P(Orders, FirewallLogChainTest, testing::Bool());

}  // namespace
}  // namespace millrace
