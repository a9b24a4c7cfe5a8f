// Tests the firewall in a chain with the load balancer, in both orders: rules see the source that a
// packet has when it arrives, and the backend as its destination.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/json.h"
#include "function/balance/settings.h"
#include "function/chained.h"
#include "function/firewall/test_settings.h"
#include "function/kind.h"
#include "function/test_line.h"

namespace millrace {
namespace {

using Line = TestLine<KeyV4>;

/// The parameter is true if the load balancer is the first function.
class FirewallChainTest : public testing::TestWithParam<bool> {
 protected:
  FirewallChainTest() {
    BalanceSettings balance;
    balance.services = {.v4 = {{.address = Line::host('v'),
                                .port = 80,
                                .protocol = kProtocolTcp,
                                .scheduler = "round-robin",
                                .backends = {{.address = Line::host('b'), .port = 8000},
                                             {.address = Line::host('c'), .port = 8000}}}},
                        .v6 = {}};
    balance_ = std::make_shared<const BalanceSettings>(std::move(balance));
  }
  std::shared_ptr<const FunctionSettings> settings(const std::string& text) {
    auto [firewall, problems] = test::read_firewall(text, around_.is);
    EXPECT_EQ(problems, "");
    std::vector<std::shared_ptr<const FunctionSettings>> all{firewall, balance_};
    if (GetParam()) std::swap(all.front(), all.back());
    return chained(std::move(all));
  }
  void use(const std::string& text) {
    const auto is = settings(text);
    deployment = *is->kind().deploy(is, {});
    line = std::make_unique<Line>(deployment->make(0));
  }
  Review reload(const std::string& text) {
    return *deployment->update(settings(text), {}, [](const auto& step) {
      step(0);
      return true;
    });
  }
  std::tuple<std::string_view, std::string> send(const std::string& from, const std::string& to,
                                                 std::uint8_t flags = Line::kSyn) {
    const auto sent = line->send({from, to, kProtocolTcp, flags});
    return {to_string(sent.verdict), sent.to};
  }
  /// Returns the sum of a member of all elements of an array of the statistics.
  std::uint64_t sum(const std::string& array, const std::string& member) {
    const Json all = deployment->statistics();
    std::uint64_t sum = 0;
    for (const Json& one : all[array]) sum += one[member].get<std::uint64_t>();
    return sum;
  }

  test::Around around_;
  std::shared_ptr<const BalanceSettings> balance_;
  std::unique_ptr<FunctionDeployment> deployment;
  std::unique_ptr<Line> line;
};

const std::string kToB = R"([[zone]]
name = "b"
prefixes = ["10.0.0.2"]
[[firewall.rule]]
name = "to b"
to = "b"
protocol = "tcp"
destination_ports = 8000
action = "accept"
)";

TEST_P(FirewallChainTest, RulesSeeTheBackend) {
  use(kToB);
  std::uint64_t accepted = 0;
  for (int n = 1; n <= 10; ++n) {
    const auto [verdict, to] = send("a:" + std::to_string(n), "v:80");
    if (verdict == "tracked") {
      ++accepted;
      EXPECT_EQ(to, "b:8000");
      EXPECT_EQ(
          line->send({"b:8000", "a:" + std::to_string(n), kProtocolTcp, Line::kSyn | Line::kAck})
              .from,
          "v:80");
    } else {
      EXPECT_EQ(verdict, "denied");
    }
  }
  EXPECT_EQ(accepted, 5U);
  EXPECT_EQ(line->live(), 5U);
  EXPECT_EQ(sum("backends", "live"), 5U) << "what is refused counts for no backend";
  EXPECT_EQ(sum("firewall_rules", "live"), 5U);
  EXPECT_EQ(sum("firewall_rules", "refused"), 5U);
  EXPECT_EQ(sum("firewall_rules", "replies"), 5U);
}

TEST_P(FirewallChainTest, ConnectionsToNoServiceAreJudgedToo) {
  use(kToB);
  EXPECT_EQ(std::get<0>(send("a:1", "b:8000")), "tracked");
  EXPECT_EQ(std::get<0>(send("a:1", "d:8000")), "denied");
  EXPECT_EQ(std::get<0>(send("a:1", "v:81")), "denied");
  EXPECT_EQ(sum("firewall_rules", "refused"), 2U);
  EXPECT_EQ(line->live(), 1U);
}

TEST_P(FirewallChainTest, AReloadJudgesByTheBackend) {
  use("[firewall]\ndefault = \"accept\"\n");
  for (const char* from : {"a:1", "a:2"}) EXPECT_EQ(std::get<0>(send(from, "v:80")), "tracked");
  EXPECT_EQ(reload(kToB), Review::all);
  const int ending = (line->fate({"a:1", "v:80"}, true) == Fate::begins_anew) +
                     (line->fate({"a:2", "v:80"}, true) == Fate::begins_anew);
  EXPECT_EQ(ending, 1) << "one went to b, the other to c";
}

TEST_P(FirewallChainTest, ALimitCountsConnectionsOnce) {
  use(kToB + "limit = { rate = \"1/s\", burst = 3 }\n");
  unsigned accepted = 0;
  for (int n = 1; n <= 20; ++n)
    accepted += std::get<0>(send("a:" + std::to_string(n), "v:80")) == "tracked";
  EXPECT_EQ(accepted, 3U);
  EXPECT_EQ(sum("firewall_rules", "limited"), 7U) << "ten went to b, ten to c";
  EXPECT_EQ(sum("firewall_rules", "refused"), 10U);
}

// The balancer has no room for what it would serve without an entry, and the firewall lets nothing
// pass without one.
TEST_P(FirewallChainTest, AFullTableDrops) {
  use(kToB);
  line->full = true;
  for (int n = 1; n <= 4; ++n)
    EXPECT_EQ(std::get<0>(send("a:" + std::to_string(n), "v:80")), "table_full");
  line->full = false;
  EXPECT_EQ(std::get<0>(send("b:8000", "a:1", Line::kSyn | Line::kAck)), "no_connection");
}

TEST_P(FirewallChainTest, ConnectionsGoOnInAnotherProcess) {
  use(kToB);
  for (int n = 1; n <= 4; ++n) send("a:" + std::to_string(n), "v:80");
  const auto is = settings(kToB);
  const auto other = *is->kind().deploy(is, {});
  Line there(other->make(0));
  EXPECT_EQ(there.take_over(*line), 2U);
  const auto none = settings("[firewall]\n");
  const auto strict = *none->kind().deploy(none, {});
  Line refusing(strict->make(0));
  EXPECT_EQ(refusing.take_over(*line), 0U);
}

INSTANTIATE_TEST_SUITE_P(Orders, FirewallChainTest, testing::Bool());

}  // namespace
}  // namespace millrace
