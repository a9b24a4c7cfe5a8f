// Tests the firewall on a line of its own: which connections begin, how they go on, and what
// changes of rules and sets do to them.
#include "function/firewall/firewall.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "function/command_done.h"
#include "function/firewall/deployment.h"
#include "function/firewall/report.h"
#include "function/firewall/test_settings.h"
#include "function/kind.h"
#include "function/test_line.h"

namespace millrace {
namespace {

std::shared_ptr<const FunctionSettings> settings_from(const std::string& text,
                                                      const Surroundings& around) {
  auto [settings, problems] = test::read_firewall(text, around);
  EXPECT_EQ(problems, "");
  return settings;
}

template <class K>
class FirewallTest : public testing::Test {
 public:
  using Line = TestLine<K>;
  static constexpr bool kV4 = Line::kV4;
  static constexpr std::uint8_t kTcp = Line::kTcp;
  static constexpr std::uint8_t kUdp = Line::kUdp;
  static constexpr std::uint8_t kIcmp = kV4 ? kProtocolIcmp : kProtocolIcmpV6;
  static constexpr std::uint8_t kAck = Line::kAck;
  static constexpr std::uint8_t kSynAck = Line::kSyn | Line::kAck;

  void use(const std::string& text) {
    const auto settings = settings_from(text, around);
    deployment = *settings->kind().deploy(settings, {});
    line = std::make_unique<Line>(deployment->make(0));
  }
  Review reload(const std::string& text) {
    return *deployment->update(settings_from(text, around), {}, each_worker);
  }
  /// Changes a set; returns an error's message, if there is one.
  std::string change(const std::string& set, const std::string& action, const std::string& body,
                     Review wanted = Review::all) {
    const std::vector<std::pair<std::string, std::string>> given{
        {"set", set}, {"action", action}, {"body", body}};
    const auto done = deployment->command("/firewall/set", given, each_worker);
    if (!done) return done.error().message;
    EXPECT_EQ(done->review, wanted);
    return "";
  }
  std::string_view send(const std::string& from, const std::string& to,
                        std::uint8_t flags = Line::kSyn, std::uint8_t protocol = kTcp) {
    return to_string(line->send({from, to, protocol, flags}).verdict);
  }
  /// Sends an ICMP query with that type and code.
  std::string_view query(const std::string& from, const std::string& to, unsigned type,
                         unsigned code = 0) {
    const std::string port = ":" + std::to_string(type << 8 | code);
    return to_string(line->send({from + port, to + port, kIcmp, 0}).verdict);
  }
  /// Returns a member of a rule's statistics.
  std::uint64_t count(const std::string& rule, const std::string& member) {
    return test::rule_count(*deployment, rule, member);
  }
  /// Returns the prefix of host 'a', 'b', ... as text.
  static std::string host(char name) { return to_string(Line::host(name)); }

  const OnEachWorker each_worker = [](const auto& step) {
    step(0);
    return true;
  };
  test::Around around_;
  const Surroundings& around = around_.is;
  std::unique_ptr<FunctionDeployment> deployment;
  std::unique_ptr<Line> line;
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(FirewallTest, Families);

const std::string kWeb = R"([[firewall.rule]]
name = "web"
protocol = "tcp"
destination_ports = ["80", "443", "8000-8100"]
action = "accept"
)";

TYPED_TEST(FirewallTest, AcceptsByRuleAndTracksBothDirections) {
  this->use("[firewall]\n" + kWeb);
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "tracked");
  EXPECT_EQ(this->send("a:2", "b:8100"), "tracked");
  EXPECT_EQ(this->send("a:3", "b:8101"), "denied");
  EXPECT_EQ(this->send("a:3", "b:80", 0, TestFixture::kUdp), "denied");
  EXPECT_EQ(this->line->live(), 2U);
  this->line->close({"a:1", "b:80"});
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "no_connection");
  EXPECT_EQ(this->count("web", "connections"), 2U);
  EXPECT_EQ(this->count("web", "live"), 1U);
  EXPECT_EQ(this->count("web", "packets"), 2U);
  EXPECT_EQ(this->count("web", "replies"), 1U);
  EXPECT_EQ(this->count("default", "refused"), 2U);
}

TYPED_TEST(FirewallTest, TheFirstRuleCounts) {
  this->use(R"([firewall]
default = "accept"
[[firewall.rule]]
name = "not a"
source = [")" +
            this->host('a') + R"("]
destination_ports = "80"
protocol = ["tcp", "udp"]
action = "reject"
)" + kWeb + R"([[firewall.rule]]
name = "no more"
protocol = 17
action = "drop"
)");
  EXPECT_EQ(this->send("a:1", "b:80"), "rejected");
  EXPECT_EQ(this->send("a:1", "b:80", 0, TestFixture::kUdp), "rejected");
  EXPECT_EQ(this->send("c:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("c:1", "b:53", 0, TestFixture::kUdp), "denied");
  EXPECT_EQ(this->send("c:1", "b:22"), "tracked");
  EXPECT_EQ(this->count("not a", "refused"), 2U);
  EXPECT_EQ(this->count("no more", "refused"), 1U);
  EXPECT_EQ(this->count("default", "connections"), 1U);
}

TYPED_TEST(FirewallTest, WhatBeginsNoConnectionTakesNothingFromALimit) {
  this->use("[firewall]\n" + kWeb + "limit = { rate = \"1/h\", burst = 2 }\n");
  for (unsigned n = 0; n < 5; ++n) EXPECT_EQ(this->send("a:80", "a:80"), "reply_collision");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:2", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:3", "b:80"), "rate_limit");
}

TYPED_TEST(FirewallTest, ANewRuleCountsFromZero) {
  const auto rule = [](const std::string& name) {
    return "[firewall]\ndefault = \"accept\"\n[[firewall.rule]]\nname = \"" + name +
           "\"\nprotocol = \"tcp\"\naction = \"drop\"\n";
  };
  this->use(rule("first"));
  for (unsigned n = 0; n < 3; ++n) EXPECT_EQ(this->send("a:1", "b:80"), "denied");
  EXPECT_EQ(this->count("first", "refused"), 3U);
  this->reload("[firewall]\ndefault = \"accept\"\n");
  this->reload("[firewall]\ndefault = \"accept\"\n");
  this->reload(rule("second"));
  EXPECT_EQ(this->count("second", "refused"), 0U);
  EXPECT_EQ(this->send("a:1", "b:80"), "denied");
  EXPECT_EQ(this->count("second", "refused"), 1U);
}

// Rules of before keep their ids until the next reload.
TYPED_TEST(FirewallTest, NamesOfRulesAreBounded) {
  const auto rules = [this](char first, unsigned count) {
    std::string text = "[firewall]\n";
    for (unsigned n = 0; n < count; ++n)
      text += std::string("[[firewall.rule]]\nname = \"") + first + std::to_string(n) +
              "\"\nprotocol = " + std::to_string(100 + n % 100) + "\naction = \"drop\"\n";
    return settings_from(text, this->around);
  };
  this->use("[firewall]\n" + kWeb);
  ASSERT_TRUE(this->deployment->update(rules('a', 40'000), {}, this->each_worker));
  const auto refused = this->deployment->update(rules('b', 40'000), {}, this->each_worker);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("40000 rules have new names"));
  EXPECT_TRUE(this->deployment->update(rules('b', 20'000), {}, this->each_worker));
  EXPECT_TRUE(this->deployment->update(rules('c', 40'000), {}, this->each_worker));
}

TYPED_TEST(FirewallTest, StrictPickupTakesNothingUpInItsMidst) {
  this->use("[firewall]\n" + kWeb);
  EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kAck), "no_connection");
  EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kSynAck), "no_connection");
  EXPECT_EQ(this->line->live(), 0U);
  this->use("[firewall]\npickup = \"loose\"\n" + kWeb);
  EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kAck), "tracked");
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kAck), "tracked");
  EXPECT_EQ(this->send("a:1", "b:22", TestFixture::kAck), "denied");
  EXPECT_EQ(this->send("a:2", "b:80", TestFixture::kSynAck), "no_connection");
}

// Such a packet begins nothing, so no rule is asked, and nobody gets an answer.
TYPED_TEST(FirewallTest, WhatEndsOrAnswersIsNotRejected) {
  for (const std::string pickup : {"strict", "loose"}) {
    this->use("[firewall]\ndefault = \"reject\"\npickup = \"" + pickup + "\"");
    const bool is_loose = pickup == "loose";
    EXPECT_EQ(this->send("a:1", "b:80"), "rejected");
    EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kAck),
              is_loose ? "rejected" : "no_connection");
    for (const auto flags : std::to_array<std::uint8_t>({0x11, 0x12, 0x04, 0x14}))
      EXPECT_EQ(this->send("a:1", "b:80", flags), "no_connection") << unsigned{flags};
  }
}

TYPED_TEST(FirewallTest, QueriesBeginByTheirTypeAndAnswersDoNot) {
  constexpr unsigned kEcho = TestFixture::kV4 ? 8 : 128;
  constexpr unsigned kAnswer = TestFixture::kV4 ? 0 : 129;
  constexpr unsigned kExtended = TestFixture::kV4 ? 42 : 160;
  this->use(R"([firewall]
[[firewall.rule]]
name = "ping"
icmp = "echo-request"
action = "accept"
)");
  EXPECT_EQ(this->query("a", "b", kAnswer), "no_connection");
  EXPECT_EQ(this->query("a", "b", kEcho), "tracked");
  EXPECT_EQ(this->query("a", "b", kExtended), "denied");
  this->use("[firewall]\n[[firewall.rule]]\nname = \"ping\"\nicmp = \"" + std::to_string(kEcho) +
            "/1\"\naction = \"accept\"\n");
  EXPECT_EQ(this->query("a", "b", kEcho, 0), "denied");
  EXPECT_EQ(this->query("a", "b", kEcho, 1), "tracked");
}

TYPED_TEST(FirewallTest, ARecheckKnowsTheCodeOfAQuery) {
  constexpr unsigned kEcho = TestFixture::kV4 ? 8 : 128;
  const auto rules = [](const std::string& codes) {
    return "[firewall]\n[[firewall.rule]]\nname = \"ping\"\nicmp = \"" + std::to_string(kEcho) +
           "/" + codes + "\"\naction = \"accept\"\n";
  };
  this->use(rules("7"));
  EXPECT_EQ(this->query("a", "b", kEcho, 7), "tracked");
  const std::string port = ":" + std::to_string(kEcho << 8 | 7);
  const typename TestFixture::Line::Packet sent{"a" + port, "b" + port, TestFixture::kIcmp, 0};
  this->reload(rules("6-9"));
  EXPECT_EQ(this->line->fate(sent, true), Fate::stays);
  this->reload(rules("0"));
  EXPECT_EQ(this->line->fate(sent, true), Fate::begins_anew);
}

// A sender of a packet to itself would get its own packets as replies (a "land" attack).
TYPED_TEST(FirewallTest, DropsWhatCollides) {
  this->use("[firewall]\ndefault = \"accept\"\n");
  EXPECT_EQ(this->send("a:1", "a:1"), "reply_collision");
  EXPECT_EQ(this->line->live(), 0U);
  EXPECT_EQ(this->count("default", "live"), 0U);
}

TYPED_TEST(FirewallTest, NothingPassesWithoutAnEntry) {
  this->use("[firewall]\n" + kWeb);
  this->line->full = true;
  EXPECT_EQ(this->send("a:1", "b:80"), "table_full");
  EXPECT_EQ(this->send("a:1", "b:81"), "denied") << "rules are asked first";
  this->line->full = false;
  this->line->over_budget = true;
  EXPECT_EQ(this->send("a:1", "b:80"), "over_budget");
  this->line->over_budget = false;
  this->line->replies_full = true;
  EXPECT_EQ(this->send("a:1", "b:80"), "table_full");
  EXPECT_EQ(this->count("web", "live"), 0U);
}

TYPED_TEST(FirewallTest, ALimitHoldsNewConnectionsBack) {
  this->use("[firewall]\n" + kWeb + "limit = { rate = \"1/s\", burst = 2, per = \"source\" }\n");
  this->line->at(1000);
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:2", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:3", "b:80"), "rate_limit");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked") << "it has begun";
  // The hosts of IPv6 are in one /64, which is one source.
  EXPECT_EQ(this->send("c:1", "b:80"), TestFixture::kV4 ? "tracked" : "rate_limit");
  this->line->at(2000);
  EXPECT_EQ(this->send("a:3", "b:80"), "tracked");
  EXPECT_EQ(this->count("web", "limited"), TestFixture::kV4 ? 1U : 2U);
  EXPECT_EQ(this->count("web", "refused"), 0U);
  this->reload("[firewall]\n" + kWeb + "limit = { rate = \"1/s\", burst = 3, per = \"source\" }\n");
  EXPECT_EQ(this->send("a:4", "b:80"), "tracked") << "one more, and what was used stays used";
  EXPECT_EQ(this->send("a:5", "b:80"), "rate_limit");
}

// Without ports, zones are found by addresses alone.
TYPED_TEST(FirewallTest, RulesNameZones) {
  this->use("[[zone]]\nname = \"one\"\nprefixes = [\"" + this->host('a') +
            "\"]\n[[zone]]\nname = \"other\"\nprefixes = [\"" + this->host('b') + R"("]
[[firewall.rule]]
name = "out"
from = "one"
to = ["other"]
action = "accept"
)");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:1", "c:80"), "denied");
  EXPECT_EQ(this->send("b:1", "a:80"), "denied");
  EXPECT_EQ(this->send("c:1", "b:80"), "denied");
}

TYPED_TEST(FirewallTest, SetsChangeWithoutAReload) {
  const std::string text =
      "[firewall]\ndefault = \"accept\"\n[firewall.sets]\nblocked = [\"" + this->host('a') + R"("]
[[firewall.rule]]
name = "blocked"
source = "@blocked"
action = "drop"
)";
  this->use(text);
  EXPECT_EQ(this->send("a:1", "c:80"), "denied");
  EXPECT_EQ(this->send("b:1", "c:80"), "tracked");
  EXPECT_EQ(this->line->fate({"b:1", "c:80"}, true), Fate::stays);
  EXPECT_EQ(this->change("blocked", "add", this->host('b') + "\n" + this->host('b') + "\n"), "");
  EXPECT_EQ(this->line->fate({"b:1", "c:80"}, true), Fate::begins_anew);
  EXPECT_EQ(this->send("b:2", "c:80"), "denied");
  EXPECT_EQ(this->change("blocked", "remove", this->host('a')), "");
  EXPECT_EQ(this->send("a:1", "c:80"), "tracked");
  EXPECT_EQ(this->reload(text), Review::all) << "the changes outlive a reload";
  EXPECT_EQ(this->send("a:2", "c:80"), "tracked");
  EXPECT_EQ(this->send("b:3", "c:80"), "denied");
  EXPECT_EQ(this->change("blocked", "replace", this->host('d')), "");
  EXPECT_EQ(this->send("b:3", "c:80"), "tracked");
  EXPECT_EQ(this->send("d:1", "c:80"), "denied");
  EXPECT_EQ(this->change("blocked", "reset", ""), "");
  EXPECT_EQ(this->send("a:3", "c:80"), "denied");
  EXPECT_EQ(this->send("d:1", "c:80"), "tracked");
}

TYPED_TEST(FirewallTest, RefusesWrongChangesOfSets) {
  this->use("[firewall.sets]\nblocked = []\n");
  const auto begins = [this](const std::string& set, const std::string& action,
                             const std::string& body, const std::string& with) {
    const std::string message = this->change(set, action, body);
    EXPECT_TRUE(message.starts_with(with)) << message;
  };
  begins("other", "add", "10.0.0.1", "there is no set other: ");
  begins("blocked", "empty", "", "action \"empty\" is not known: give add, ");
  begins("blocked", "add", "", "there are no prefixes: ");
  begins("blocked", "add", "10.0.0.1 x", "\"x\" is no prefix: give one like ");
  begins("blocked", "add", "10.0.0.1/8", "10.0.0.1/8 has bits set behind its prefix: ");
  begins("blocked", "add", "10.0.0.1/33", "\"33\" is no prefix length: ");
  begins("blocked", "reset", "10.0.0.1", "reset takes no prefixes: ");
  begins("", "add", "10.0.0.1", "the parameters set and action are needed: ");
}

// A process that takes over asks for this while nobody forwards packets.
TYPED_TEST(FirewallTest, AnUpdateToTheSameSettingsAsksNothingAgain) {
  const auto settings = settings_from("[firewall]\n" + kWeb, this->around);
  const auto is = *settings->kind().deploy(settings, {});
  is->make(0);
  bool has_asked = false;
  const auto review = is->update(settings, {}, [&](const auto&) { return has_asked = true; });
  EXPECT_EQ(*review, Review::none);
  EXPECT_FALSE(has_asked);
}

TYPED_TEST(FirewallTest, AReloadEndsWhatItDenies) {
  const auto rules = [](const std::string& action, const std::string& on_reload) {
    return "[firewall]\non_reload = \"" + on_reload + "\"\n[[firewall.rule]]\nname = \"ssh\"\n" +
           "protocol = \"tcp\"\ndestination_ports = 22\naction = \"" + action + "\"\n" + kWeb;
  };
  this->use(rules("accept", "recheck"));
  EXPECT_EQ(this->send("a:1", "b:22"), "tracked");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->reload(rules("reject", "recheck")), Review::all);
  EXPECT_EQ(this->line->fate({"a:1", "b:22"}, true), Fate::reset);
  EXPECT_EQ(this->line->fate({"a:1", "b:80"}, true), Fate::stays);
  EXPECT_EQ(this->reload(rules("drop", "recheck")), Review::all);
  EXPECT_EQ(this->line->fate({"a:1", "b:22"}, true), Fate::begins_anew);
  EXPECT_EQ(this->reload(rules("drop", "keep")), Review::none);
  EXPECT_EQ(this->line->fate({"a:1", "b:22"}, true), Fate::stays);
  EXPECT_EQ(this->send("b:22", "a:1", TestFixture::kSynAck), "tracked");
  EXPECT_EQ(this->send("a:2", "b:22"), "denied");
}

// A rule keeps its counters while it has its name; a rule that is gone is listed while its
// connections live.
TYPED_TEST(FirewallTest, CountersFollowNames) {
  const std::string ssh =
      "[[firewall.rule]]\nname = \"ssh\"\nprotocol = \"tcp\"\ndestination_ports = 22\n"
      "action = \"accept\"\n";
  const std::string keep = "[firewall]\non_reload = \"keep\"\n";
  this->use(keep + ssh + kWeb);
  EXPECT_EQ(this->send("a:1", "b:22"), "tracked");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  this->reload(keep + kWeb);
  EXPECT_EQ(this->count("web", "connections"), 1U);
  EXPECT_EQ(this->send("b:22", "a:1", TestFixture::kSynAck), "tracked");
  EXPECT_EQ(this->count("ssh", "replies"), 1U);
  this->line->close({"a:1", "b:22"});
  EXPECT_EQ(this->count("ssh", "replies"), UINT64_MAX) << "listed no longer";
  this->reload(keep + kWeb + ssh);
  EXPECT_EQ(this->count("ssh", "live"), 0U);
  EXPECT_EQ(this->send("a:3", "b:22"), "tracked");
  EXPECT_EQ(this->count("ssh", "live"), 1U);
}

TYPED_TEST(FirewallTest, ConnectionsGoOnInAnotherProcess) {
  this->use("[firewall]\n" + kWeb);
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("a:1", "b:443"), "tracked");
  const auto take_over = [this](const std::string& text) {
    const auto settings = settings_from(text, this->around);
    const auto other = *settings->kind().deploy(settings, {});
    typename TestFixture::Line there(other->make(0));
    return there.take_over(*this->line);
  };
  // Other rules have taken the ids meanwhile.
  const std::string other =
      "[[firewall.rule]]\nname = \"a\"\nprotocol = \"tcp\"\ndestination_ports = 443\n"
      "action = \"drop\"\n";
  EXPECT_EQ(take_over("[firewall]\n" + other + kWeb), 1U);
  EXPECT_EQ(take_over("[firewall]\non_reload = \"keep\"\n" + other + kWeb), 2U);
  EXPECT_EQ(take_over("[firewall]\n" + other), 0U);
}

// After a take-over, rules have packets of connections that began in another process.
TEST(FirewallReport, ShowsEachRuleThatHasPackets) {
  EXPECT_EQ(to_table({RuleStatistics{.name = "idle"}}), "");
  for (auto RuleStatistics::* const count : {&RuleStatistics::packets, &RuleStatistics::replies}) {
    RuleStatistics rule{.name = "web"};
    rule.*count = 1;
    EXPECT_NE(to_table({rule}).find("\nweb "), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
