// Tests which sessions end when pools and rules change.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <tuple>

#include "function/nat/test_nat.h"

namespace millrace {
namespace {

/// Hosts a to o are inside, p to w are public.
class NatReloadTest : public NatTest {
 protected:
  static std::string pool(const std::string& name, const std::string& addresses,
                          const std::string& keys = "") {
    return "[[nat.pool]]\nname = \"" + name + "\"\naddresses = " + addresses + "\n" + keys + "\n";
  }
  static std::string rule(const std::string& source, const std::string& name,
                          const std::string& keys = "") {
    return "[[nat.rule]]\nsource = \"" + source + "\"\npool = \"" + name + "\"\n" + keys + "\n";
  }
  void begin(const std::string& text) {
    const auto [settings, problems] = read(text);
    ASSERT_EQ(problems, "");
    deployment_ = *settings->kind().deploy(settings, {});
    line_ = std::make_unique<Line>(deployment_->make(0));
  }
  Fate fate(const std::string& from, std::uint8_t protocol = kUdp) {
    return line_->fate({from, "z:80", protocol, Line::kSyn}, false);
  }
};

TEST_F(NatReloadTest, EndsSessionsWhosePublicEndIsGone) {
  begin(pool("x", R"(["10.0.0.16/31"])") + rule("10.0.0.0/28", "x"));
  std::map<std::string, std::string> ends;  // by inside end
  for (const char customer : std::string("abcdefgh")) {
    for (const std::uint8_t protocol : {kTcp, kUdp, kProtocolEsp}) {
      const std::string inside = std::string{customer} + (protocol == kProtocolEsp ? ":0" : ":9");
      const std::string to = protocol == kProtocolEsp ? "z:0" : "z:80";
      const std::string end = public_end(inside, to, protocol);
      if (protocol != kProtocolEsp) ends[inside] = end;
    }
  }
  EXPECT_EQ(reload(pool("x", R"(["10.0.0.16/31"])") + rule("10.0.0.0/28", "x")), Review::none);
  EXPECT_EQ(reload(pool("y", R"(["10.0.0.20/30"])") +
                   pool("x", R"(["10.0.0.18", "10.0.0.17"])", "sessions_per_customer = 9") +
                   rule("10.0.0.0/28", "x")),
            Review::all);
  unsigned stay = 0;
  for (const auto& [inside, end] : ends) {
    const bool stays = end[0] == 'q';
    stay += stays;
    EXPECT_EQ(fate(inside), stays ? Fate::stays : Fate::begins_anew) << inside << ' ' << end;
    EXPECT_EQ(fate(inside, kTcp), stays ? Fate::stays : Fate::reset) << inside << ' ' << end;
  }
  EXPECT_GT(stay, 0U);
  EXPECT_LT(stay, ends.size());
  for (const char customer : std::string("ijklmno")) {
    const std::string end = public_end(std::string{customer} + ":9", "z:80");
    EXPECT_TRUE(end[0] == 'q' || end[0] == 'r') << end;
  }
  EXPECT_EQ(send("z:80", "p:1024").verdict, Verdict::no_service) << "it is no pool's any more";
  EXPECT_EQ(send("z:80", "t:1024").verdict, Verdict::no_mapping);
}

TEST_F(NatReloadTest, EndsSessionsWhoseCustomerHasAnotherPool) {
  const std::string pools = pool("x", R"("10.0.0.16")") + pool("y", R"("10.0.0.17")");
  begin(pools + rule("10.0.0.0/29", "x") + rule("10.0.0.8/29", "y"));
  for (const char customer : std::string("abcdij"))
    EXPECT_EQ(public_end(std::string{customer} + ":9", "z:80")[0], customer < 'i' ? 'p' : 'q');
  // Customer i goes to the other pool, c has no rule any more.
  EXPECT_EQ(reload(pool("y", R"("10.0.0.17")") + pool("x", R"("10.0.0.16")") +
                   rule("10.0.0.9", "x") + rule("10.0.0.8/29", "y") + rule("10.0.0.0/31", "x") +
                   rule("10.0.0.2", "x") + rule("10.0.0.4/30", "x")),
            Review::all);
  for (const char customer : std::string("abcdij")) {
    const bool ends = customer == 'i' || customer == 'c';
    EXPECT_EQ(fate(std::string{customer} + ":9"), ends ? Fate::begins_anew : Fate::stays)
        << customer;
  }
  EXPECT_EQ(public_end("i:10", "z:80")[0], 'p');
  EXPECT_EQ(reload(pools + rule("10.0.0.0/28", "x", "customer_prefix = 31")), Review::all);
  EXPECT_EQ(fate("a:9"), Fate::begins_anew) << "the customer is 10.0.0.0 now";
  EXPECT_EQ(fate("b:9"), Fate::stays) << "10.0.0.2 is the customer, as before";
}

TEST_F(NatReloadTest, AHairpinEndsWithEitherOfItsEnds) {
  const std::string filtering = "filtering = \"endpoint-independent\"";
  const std::string rules = rule("10.0.0.0/29", "x") + rule("10.0.0.8/29", "y");
  const std::string x = pool("x", R"("10.0.0.16")", filtering);
  const std::string y = pool("y", R"("10.0.0.17")", filtering);
  for (const bool first_goes : {true, false}) {
    begin(x + y + rules);
    const std::string end = public_end("a:5", "z:80");
    ASSERT_EQ(send("i:6", end).verdict, Verdict::tracked);
    const auto look = [&] { return line_->fate({"i:6", end, kUdp, Line::kSyn}, false); };
    EXPECT_EQ(look(), Fate::stays);
    reload(first_goes ? pool("x", R"("10.0.0.18")", filtering) + y + rules
                      : x + pool("y", R"("10.0.0.18")", filtering) + rules);
    EXPECT_EQ(look(), Fate::begins_anew);
  }
}

TEST_F(NatReloadTest, KeepsSessionsWhereOnlyFilteringChanges) {
  begin(pool("x", R"("10.0.0.16")") + rule("10.0.0.0/28", "x"));
  const std::string end = public_end("a:5", "z:80");
  EXPECT_EQ(inside_end("y:1", end), "no_mapping");
  const auto change = [&](const std::string& keys) {
    return reload(pool("x", R"("10.0.0.16")", keys) + rule("10.0.0.0/28", "x"));
  };
  EXPECT_EQ(change("filtering = \"endpoint-independent\""), Review::all);
  EXPECT_EQ(fate("a:5"), Fate::stays);
  EXPECT_EQ(inside_end("y:1", end), "a:5");
  EXPECT_EQ(change("filtering = \"address-dependent\""), Review::all);
  EXPECT_EQ(fate("a:5"), Fate::begins_anew) << "nobody knows to whom the end has sent";
}

}  // namespace
}  // namespace millrace
