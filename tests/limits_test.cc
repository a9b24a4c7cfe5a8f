// Tests the limits of sources and of services on a whole line, with every table and every ageing
// scheme but `none`, in both families. Tests with several workers are in limits_sharing_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "limits_line.h"

namespace millrace {
namespace {

struct Scheme {
  std::string table;
  std::string ageing;
  bool is_v4;

  friend void PrintTo(const Scheme& scheme, std::ostream* to) {
    *to << scheme.table << ", " << scheme.ageing << (scheme.is_v4 ? ", IPv4" : ", IPv6");
  }
};

class LimitsTest : public testing::TestWithParam<Scheme>, protected test::LimitsLine {
 protected:
  void make(const Plan& plan) {
    LimitsLine::make(GetParam().table, GetParam().ageing, GetParam().is_v4, plan);
  }
};

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> all;
  for (const auto& table : TableSchemes::names()) {
    for (const auto& ageing : AgeingSchemes::names()) {
      if (ageing == "none") continue;
      for (const bool is_v4 : {true, false}) all.push_back({table, ageing, is_v4});
    }
  }
  return test::in_turn(std::move(all), 2 * (AgeingSchemes::kSize - 1));
}
INSTANTIATE_TEST_SUITE_P(
    AllSchemes, LimitsTest, testing::ValuesIn(all_schemes()), [](const auto& p) {
      std::string name = p.param.table + "_" + p.param.ageing + (p.param.is_v4 ? "_v4" : "_v6");
      std::ranges::replace_if(name, [](char c) { return c == '-' || c == '+'; }, '_');
      return name;
    });

TEST_P(LimitsTest, ASourceAtItsLimitIsRefusedAndAnotherIsNot) {
  make({.per_source = 2});
  EXPECT_EQ(open("a1"), "tracked");
  EXPECT_EQ(open("a2w"), "tracked");
  EXPECT_EQ(established(0) + established(1), 2U);
  play(R"(
    a3  SYN source_limit
    a4w ACK source_limit
    a5  UDP source_limit
    a6  FIN stateless
    a1  ACK tracked
    a1  < ACK tracked
    b1  UDP tracked)");
  EXPECT_EQ(open("b2"), "tracked");
  EXPECT_EQ(count(Verdict::source_limit), 3U);
  check();
}

TEST_P(LimitsTest, APrefixIsOneSource) {
  make({.per_source = 1, .prefix_v4 = 24});
  EXPECT_EQ(open("a1"), "tracked");
  EXPECT_EQ(open("A2"), "source_limit");
  EXPECT_EQ(open("b2"), "tracked");
  make({.per_source = 1, .prefix_v6 = 128});
  EXPECT_EQ(open("a3"), "tracked");
  EXPECT_EQ(open("A4"), "tracked");
  check();
}

// Packets with a forged source address, from a sender that sees no replies, count neither for the
// limit of that source nor for that of the service: SYNs, ACKs, UDP, RSTs, FINs, guessed
// acknowledgements. Nor do a server's SYN-ACKs, bare ACKs and RSTs.
TEST_P(LimitsTest, WhatAnybodyCanMakeIsNotCounted) {
  make({.per_source = 1, .per_service = 1});
  for (int n = 10; n < 30; ++n) EXPECT_EQ(send("a" + std::to_string(n), false, "SYN"), "tracked");
  play(R"(
    a10 RST         tracked
    a11 < RST       tracked
    a12 < SYN-ACK   tracked
    a12 guess       tracked
    a12 guessed-FIN tracked
    a12 RST         tracked
    a13 < SYN-ACK   tracked
    a13 < RST       tracked
    a40 ACK         tracked
    a40 < RST       tracked
    a43 ACK         tracked
    a43 < ACK       tracked
    a44 cut         tracked
    a44 < ACK       tracked
    a41 ACK         tracked
    a41 FIN         tracked
    a42 UDP         tracked)");
  EXPECT_EQ(established(), 0U);
  EXPECT_EQ(open("a1"), "tracked");
  EXPECT_EQ(established(), 1U);
  check();
}

// At the limit a packet that would prove one more connection is dropped, and changes nothing.
TEST_P(LimitsTest, TheProofWaitsForRoom) {
  for (const bool is_service : {false, true}) {
    make(is_service ? Plan{.per_service = 1} : Plan{.per_source = 1});
    const std::string limit = is_service ? "service_limit" : "source_limit";
    play("a1 SYN tracked\na1 < SYN-ACK tracked\na2 SYN tracked\na2 < SYN-ACK tracked");
    play("a3 UDP tracked\na4 ACK tracked\na1 ACK tracked");
    EXPECT_EQ(established(), 1U);
    play("a2 ACK " + limit + "\na2 ACK " + limit + "\na2 < SYN-ACK tracked\na3 < UDP " + limit);
    play("a4 < DATA " + limit + "\na3 UDP tracked\na1 ACK tracked\na1 < ACK tracked");
    EXPECT_EQ(established(), 1U);
    EXPECT_EQ(balance_->statistics()[0].limited, is_service ? 4U : 0U);
    play("a1 RST tracked\na2 ACK " + limit + "\n+80000\na2 ACK tracked");
    EXPECT_EQ(established(), 1U);
    check();
  }
}

TEST_P(LimitsTest, EveryEndGivesBack) {
  for (const bool is_service : {false, true}) {
    make(is_service ? Plan{.per_service = 1} : Plan{.per_source = 1});
    const std::string limit = is_service ? "service_limit" : "source_limit";
    const auto is_free = [&](const std::string& who) {
      EXPECT_EQ(established(), 0U) << who;
      EXPECT_EQ(open(who), "tracked");
      EXPECT_EQ(established(), 1U) << who;
      EXPECT_EQ(open("a99"), limit);
      check();
    };
    is_free("a1");
    play("a1 RST tracked\n+80000");
    is_free("a2");
    play("+7600000");  // idle beyond the timeout
    is_free("a3");
    // Once both sides have sent FINs and acknowledged each other's FIN, the connection no longer
    // counts, although it still has entries.
    play("a3 FIN tracked\na3 < ACK tracked\na3 < FIN tracked\n");
    EXPECT_EQ(open("a99"), limit);
    play("a3 ACK tracked");
    is_free("a4");
    // A RST ends the connection, and a SYN begins it again, while the connection's source or
    // service is at the limit.
    play("a4 RST tracked\na99 SYN " + limit);
    play("a4 SYN tracked");
    EXPECT_EQ(established(), 0U);
    play("a4 < SYN-ACK tracked\na4 ACK tracked\na99 SYN " + limit);
    EXPECT_EQ(line_->counters().closed[static_cast<std::size_t>(Ending::reopened)].value(), 1U);
    play("+7600000");
    EXPECT_EQ(established(), 0U);
    check();
  }
}

// A reply that proves a connection without an entry may evict another connection to make room, but
// not if a limit forbids one more connection.
TEST_P(LimitsTest, RepliesProveNoMoreThanTheLimit) {
  for (const bool is_service : {false, true}) {
    Plan plan{.capacity = 100, .half_open_percent = 1, .evicts = true};
    (is_service ? plan.per_service : plan.per_source) = 1;
    make(plan);
    const std::string limit = is_service ? "service_limit" : "source_limit";
    play(R"(
      x1 SYN       tracked
      a1 SYN       stateless
      a1 < SYN-ACK stateless
      a1 ACK       stateless
      a2 SYN       stateless
      a2 < SYN-ACK stateless
      a1 < ACK     stateless
      a1 < DATA    tracked
      a1 ACK       tracked)");
    EXPECT_EQ(established(), 1U);
    const std::uint64_t opened = line_->counters().opened.value();
    // Packets of connections without an entry do not get around the limit either.
    play("a2 ACK " + limit + "\na2 < DATA " + limit + "\na3 SYN " + limit +
         "\na2 < SYN-ACK stateless");
    EXPECT_EQ(line_->counters().opened.value(), opened);
    play("a1 RST tracked\n+80000\na2 ACK stateless\na2 < DATA tracked");
    EXPECT_EQ(established(), 1U);
    check();
  }
}

// Replies in one burst keep the limit, too: no connection is evicted to make room for a connection
// that a limit forbids.
TEST_P(LimitsTest, NorDoRepliesOfOneBurst) {
  for (const bool is_service : {false, true}) {
    Plan plan{.capacity = 100, .half_open_percent = 1, .evicts = true};
    (is_service ? plan.per_service : plan.per_source) = 2;
    make(plan);
    play("x1 SYN tracked");
    for (const char* who : {"a1", "a2", "a3", "a4"}) {
      EXPECT_EQ(send(who, false, "SYN"), "stateless");
      EXPECT_EQ(send(who, true, "SYN-ACK"), "stateless");
      EXPECT_EQ(send(who, false, "ACK"), "stateless");
    }
    const Verdict limit = is_service ? Verdict::service_limit : Verdict::source_limit;
    EXPECT_EQ(answer({"a1", "a2", "a3", "a4"}),
              (std::vector{Verdict::tracked, Verdict::tracked, limit, limit}));
    EXPECT_EQ(established(), 2U);
    EXPECT_EQ(line_->counters().opened.value(), 3U);
    check();
  }
}

// A reply that proves a connection without an entry advances the connection's state twice: when the
// connection opens, and when the line follows the packets of the reply's burst. The next sequence
// number of the reply's sender must be right all the same.
TEST_P(LimitsTest, AReplyThatProvedEndsItsConnection) {
  make({.per_source = 2, .capacity = 100, .half_open_percent = 1, .evicts = true});
  play(R"(
    x1 SYN       tracked
    a1 SYN       stateless
    a1 < SYN-ACK stateless
    a1 < DATA    tracked
    a2 SYN       stateless
    a2 < SYN-ACK stateless
    a2 < FIN     tracked)");
  EXPECT_EQ(established(), 2U);
  play("a1 < DATA tracked\na1 < RST tracked\n+15000");
  EXPECT_EQ(established(), 1U);
  play("a2 FIN tracked\na2 < ACK tracked");
  EXPECT_EQ(established(), 0U);
  check();
}

TEST_P(LimitsTest, OneDirectionIsProvedByItsProgress) {
  make({.per_source = 1, .one_way = true});
  play(R"(
    a1 SYN tracked
    a2 SYN tracked
    a3 UDP tracked
    a1 ACK tracked
    a2 ACK source_limit
    a3 UDP source_limit
    a1 RST tracked
    a1 ACK tracked
    a2 SYN tracked)");
  EXPECT_EQ(established(), 1U);
  check();
}

TEST_P(LimitsTest, TheLimitOfAServiceIsItsOwn) {
  make({.per_service = 2});
  EXPECT_EQ(open("a1"), "tracked");
  EXPECT_EQ(open("b1"), "tracked");
  EXPECT_EQ(open("c1"), "service_limit");
  for (int n = 0; n < 5; ++n) EXPECT_EQ(open("c" + std::to_string(n) + "w"), "tracked");
  EXPECT_EQ(established(0), 2U);
  EXPECT_EQ(established(1), 5U);
  EXPECT_EQ(count(Verdict::service_limit), 1U);
  EXPECT_EQ(line_->counters().refused.value(), 0U);
  check();
}

// A connection that one of the two limits refuses does not count for the other limit.
TEST_P(LimitsTest, OneLimitTakesNothingWhereTheOtherRefuses) {
  make({.per_source = 1, .per_service = 2});
  play("a2 SYN tracked\na2 < SYN-ACK tracked\nc1 SYN tracked\nc1 < SYN-ACK tracked");
  EXPECT_EQ(open("a1"), "tracked");
  EXPECT_EQ(open("b1"), "tracked");
  play("c1 ACK service_limit\na2 ACK source_limit");
  EXPECT_EQ(sources_->total(), 2U);
  EXPECT_EQ(established(), 2U);
  check();
}

// The configured capacity is far too small, so that in most tables proved connections of many
// sources evict one another all the time. The counts must equal the numbers of live connections,
// down to 0 at the end.
TEST_P(LimitsTest, EvictionGivesBackWhatItTakes) {
  make({.per_source = 12,
        .per_service = 40,
        .capacity = 64,
        .half_open_percent = 10,
        .evicts = true});
  std::mt19937 random(5);
  unsigned proved = 0;
  for (unsigned n = 0; n < 3000; ++n) {
    now_ = now_ + 5;
    const auto host = static_cast<unsigned>(random() % 40);  // about half of packets are host a's
    const std::string who = std::string(1, static_cast<char>('a' + (host < 20 ? host : 0))) +
                            std::to_string(random() % 100) + (random() % 4 == 0 ? "w" : "");
    const auto kind = static_cast<unsigned>(random() % 8);
    if (send(who, false, kind == 0 ? "SYN" : "ACK") == "stateless" || kind > 1)
      proved += send(who, true, "DATA") == "tracked";
    if (kind == 2) send(who, false, "RST");
    if (n % 500 == 0) check();
  }
  EXPECT_GT(proved, 100U);
  EXPECT_GT(count(Verdict::source_limit), 0U);
  EXPECT_GT(count(Verdict::service_limit), 0U);
  const auto evicted = line_->counters().closed[static_cast<std::size_t>(Ending::evicted)].value();
  // Some tables are larger than the configured capacity.
  if (line_->report_v4().slots + line_->report_v6().slots < 300) {
    EXPECT_GT(evicted, 20U);
  }
  check();
  pass(10'000'000);
  pass(10'000'000);
  EXPECT_EQ(sources_->total(), 0U);
  EXPECT_EQ(established(0) + established(1), 0U);
}

}  // namespace
}  // namespace millrace
