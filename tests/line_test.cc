// Tests whole lines on packets in memory, with every table and every ageing scheme.
#include "line/line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "line_fixture.h"
#include "port/replay_port.h"
#include "traffic/generate.h"

namespace millrace::test {
namespace {

INSTANTIATE_TEST_SUITE_P(AllSchemes, LineTest, testing::ValuesIn(all_schemes()), name_of);

TEST_P(LineTest, CampusTrafficPassesAndAddsUp) {
  auto capture = generate({.connections = 2000, .packets = 20'000, .seed = 5});
  ASSERT_TRUE(capture.has_value());
  auto made = make({}, {.capacity = 5000, .capacity_v6 = 5000, .timeouts = Timeouts::all(3'000)});
  auto port = ReplayPort::create(*capture, {});
  made.line->run(*port);
  EXPECT_EQ(made.line->counters().in.value(), 20'000U);
  EXPECT_EQ(made.line->counters().out.value(), 20'000U);
  EXPECT_GT(count(made, Verdict::tracked), 19'000U);
  EXPECT_EQ(made.line->counters().ended() > 0, GetParam().ageing != "none");
  check(made);
}

TEST_P(LineTest, RepliesComeBackAsTheVirtualAddress) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  auto made = make(config, small());
  TestPort port;
  for (unsigned n = 0; n < 20; ++n) port.add(packet(client(n), kVirtual), n);
  made.line->run(port);
  ASSERT_EQ(port.sent.size(), 20U);
  TestPort back;
  for (unsigned n = 0; n < 20; ++n) {
    EXPECT_EQ(destination_of(port.sent[n]).port, 8080);
    back.add(packet(destination_of(port.sent[n]), client(n), kSyn | kAck), 30);
  }
  back.add(packet({{10, 0, 0, 1}, 9999}, {{192, 0, 2, 99}, 5}, kAck, 1), 30);  // no reply
  made.line->run(back);
  ASSERT_EQ(back.sent.size(), 21U);
  for (unsigned n = 0; n < 20; ++n) {
    EXPECT_TRUE(source_of(back.sent[n]) == kVirtual);
    EXPECT_TRUE(destination_of(back.sent[n]) == client(n));
  }
  EXPECT_TRUE((source_of(back.sent[20]) == Endpoint{{10, 0, 0, 1}, 9999}));
  EXPECT_EQ(count(made, Verdict::no_service), 1U);
  check(made);
}

// For a connection without an entry only the backend that consistent hashing chooses may reply. The
// SYN-ACK of this backend proves no connection, nor does its bare ACK; its data does.
TEST_P(LineTest, AReplyWithoutAnEntryComesBackFromMaglevsBackend) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  config.services.v4[0].direct = true;
  auto made = make(config, small());
  TestPort there;
  there.add(packet(client(7), kVirtual, kAck | kFin), 0);  // begins no connection
  made.line->run(there);
  ASSERT_EQ(there.sent.size(), 1U);
  const auto answer = [&](std::uint8_t flags, unsigned data = 0) {
    TestPort back;
    for (const std::uint8_t last : std::array<std::uint8_t, 3>{1, 2, 3})
      back.add(packet({{10, 0, 0, last}, 8080}, client(7), flags, data), 1);
    made.line->run(back);
    for (std::uint8_t i = 0; i < 3; ++i) {
      const Endpoint backend{{10, 0, 0, static_cast<std::uint8_t>(i + 1)}, 8080};
      const bool asked = destination_of(there.sent[0]) == backend;
      const bool is_own = flags == kSyn;
      EXPECT_TRUE(source_of(back.sent[i]) == (asked && !is_own ? kVirtual : backend));
    }
  };
  answer(kSyn);  // a SYN of each backend's own, which is no reply
  answer(kSyn | kAck);
  EXPECT_EQ(count(made, Verdict::stateless), 2U);
  EXPECT_EQ(made.line->counters().opened.value(), 0U);
  answer(kAck);  // a challenge ACK, which any unexpected packet provokes
  EXPECT_EQ(count(made, Verdict::stateless), 3U);
  EXPECT_EQ(made.line->counters().opened.value(), 0U);
  answer(kAck, 1);
  EXPECT_EQ(count(made, Verdict::stateless), 3U);
  EXPECT_EQ(made.line->counters().opened.value(), 1U);
  check(made);
}

// A flood fills the budget of half-open connections, and no more; a connection that a reply proves
// gets its entries all the same.
TEST_P(LineTest, HalfOpenConnectionsHaveABudget) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  LineConfig line = small();
  line.half_open_percent = 20;
  auto made = make(config, line);
  TestPort flood;
  for (unsigned n = 0; n < 300; ++n) flood.add(packet(client(n), kVirtual), n / 10);
  made.line->run(flood);
  EXPECT_EQ(made.line->report_v4().live, 20U);
  EXPECT_EQ(made.line->counters().over_budget.value(), 280U);
  EXPECT_EQ(count(made, Verdict::stateless), 280U);
  ASSERT_EQ(flood.sent.size(), 300U);
  TestPort back;
  for (unsigned n = 100; n < 150; ++n)
    back.add(packet(destination_of(flood.sent[n]), client(n), kAck, 1), 40);
  made.line->run(back);
  EXPECT_EQ(made.line->report_v4().live, 70U);
  for (const Bytes& p : back.sent) EXPECT_TRUE(source_of(p) == kVirtual);
  TestPort more;  // the proved connections keep their backends
  for (unsigned n = 100; n < 150; ++n) more.add(packet(client(n), kVirtual, kAck), 50);
  made.line->run(more);
  EXPECT_EQ(count(made, Verdict::tracked), 20U + 50U + 50U);
  for (unsigned n = 0; n < 50; ++n)
    EXPECT_TRUE(destination_of(more.sent[n]) == destination_of(flood.sent[100 + n]));
  check(made);
}

/// A function that serves no packet without an entry.
class NeedsEntries final : public Function {
 public:
  explicit NeedsEntries(Function& is) : is_(&is) {}
  bool needs_entries() const override { return true; }
  FunctionFor<KeyV4>& v4() override { return is_->v4(); }
  FunctionFor<KeyV6>& v6() override { return is_->v6(); }

 private:
  Function* is_;
};

// A flood of half-open connections evicts its own if packets without an entry are not served, and
// those that are idle longest first; proved connections stay, and a new one has time for an answer.
TEST_P(LineTest, HalfOpenConnectionsMakeRoomForNewOnes) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  LineConfig line = small();
  line.half_open_percent = 20;
  line.evicts = true;
  auto made = make(config, line);
  NeedsEntries function(*made.balance);
  line.table = GetParam().table;
  line.ageing = GetParam().ageing;
  line.pages = Pages::small;
  made.line = std::move(*make_line(line, function));
  const auto play = [&](unsigned from, unsigned to, std::uint8_t flags, const Endpoint* backend) {
    TestPort port;
    for (unsigned n = from; n < to; ++n) {
      const std::uint32_t now = n / 5 + (backend != nullptr ? 1 : 0);
      port.add(backend != nullptr ? packet(*backend, client(n), flags)
                                  : packet(client(n), kVirtual, flags),
               now);
    }
    made.line->run(port);
    return port.sent.empty() ? Endpoint{} : destination_of(port.sent.back());
  };
  const auto prove = [&](unsigned n) {
    const Endpoint backend = play(n, n + 1, kSyn, nullptr);
    play(n, n + 1, kSyn | kAck, &backend);
    const std::uint64_t before = count(made, Verdict::tracked);
    play(n, n + 1, kAck, nullptr);
    EXPECT_EQ(count(made, Verdict::tracked), before + 1);
  };
  for (unsigned n = 0; n < 10; ++n) prove(n);
  play(10, 300, kSyn, nullptr);
  EXPECT_EQ(made.line->report_v4().live, 10U + 20U);
  EXPECT_EQ(made.line->counters().over_budget.value(), 0U);
  EXPECT_EQ(made.line->counters().closed[static_cast<std::size_t>(Ending::evicted)].value(), 270U);
  prove(301);
  const std::uint64_t before = count(made, Verdict::tracked);
  play(0, 10, kAck, nullptr);
  EXPECT_EQ(count(made, Verdict::tracked), before + 10U);
  EXPECT_EQ(made.line->counters().opened.value(), 301U);
  check(made);
}

// In a full table, a connection that a reply proves evicts a connection of lower worth: of a state
// with a lower rank, or idle for longer at the same rank.
TEST_P(LineTest, AFullTableGivesUpWhatIsMissedLeast) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  LineConfig line = small(64);
  line.timeouts = Timeouts::all(1'000'000);
  line.evicts = true;
  auto made = make(config, line);
  constexpr unsigned kClients = 500;
  TestPort there;
  for (unsigned n = 0; n < kClients; ++n) there.add(packet(client(n), kVirtual, kAck), n);
  made.line->run(there);
  const std::uint64_t half_open = made.line->report_v4().live;
  // Under `lazy` an insertion may replace expired entries, so that only the table itself knows when
  // it is full.
  const bool is_exact = GetParam().ageing != "lazy";
  EXPECT_TRUE(is_exact ? half_open == 64 : half_open >= 64) << half_open;
  TestPort back;
  for (unsigned n = 0; n < kClients; ++n)
    back.add(packet(destination_of(there.sent[n]), client(n), kAck, 1), kClients + 10 * n);
  made.line->run(back);
  for (const Bytes& p : back.sent) EXPECT_TRUE(source_of(p) == kVirtual);
  const auto& closed = made.line->counters().closed;
  // Some tables are larger than the configured capacity.
  if (made.line->report_v4().live < kClients) {
    EXPECT_GT(closed[static_cast<std::size_t>(Ending::evicted)].value(), kClients / 4);
  }
  EXPECT_EQ(closed[static_cast<std::size_t>(Ending::timed_out)].value(), 0U);
  EXPECT_GE(made.line->report_v4().live, 64U);
  EXPECT_GE(made.line->counters().over_watermark[1].value(), 1U);
  check(made);
}

// A capture may hold a connection's first packet and the reply to it a few packets apart.
TEST_P(LineTest, AReplyInTheBurstThatOpensItsConnectionIsFound) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1})}};
  auto made = make(config, small());
  Capture capture(CaptureFormat{});
  const Endpoint backend{{10, 0, 0, 1}, 8080};
  for (unsigned n = 0; n < 40; ++n) {
    for (const Bytes& p : {packet(client(n), kVirtual), packet(backend, client(n), kSyn | kAck)}) {
      ASSERT_TRUE(capture.append(0, static_cast<std::uint32_t>(p.size()), p).has_value());
    }
  }
  auto port = ReplayPort::create(capture, {.burst = 64});
  made.line->run(*port);
  EXPECT_EQ(count(made, Verdict::tracked), 80U);
  EXPECT_EQ(made.balance->statistics()[0].backends[0].replies, 40U);
  check(made);
}

// Two services share backends: connections from one client port to both services have the same
// reply key if both get the same backend.
TEST_P(LineTest, RepliesThatCollideGetAnotherBackendOrNone) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2}), service(kVirtual2, {1, 2})}};
  auto made = make(config, small());
  TestPort port;
  port.add(packet(client(7), kVirtual), 0);
  port.add(packet(client(7), kVirtual2), 1);
  made.line->run(port);
  ASSERT_EQ(port.sent.size(), 2U);
  EXPECT_NE(destination_of(port.sent[0]).address, destination_of(port.sent[1]).address);
  EXPECT_EQ(made.line->counters().collisions.value(), 1U);

  config.services = {.v4 = {service(kVirtual, {1}), service(kVirtual2, {1})}};
  auto tight = make(config, small());
  TestPort second;
  second.add(packet(client(7), kVirtual), 0);
  second.add(packet(client(7), kVirtual2), 1);
  second.add(packet(client(8), kVirtual2), 2);
  tight.line->run(second);
  EXPECT_EQ(second.sent.size(), 2U);
  EXPECT_EQ(count(tight, Verdict::reply_collision), 1U);
  check(made);
  check(tight);
}

TEST_P(LineTest, AFullTableDropsOrServesStateless) {
  constexpr unsigned kClients = 1000;  // more than the smallest table of any kind holds
  for (const bool stateless : {false, true}) {
    BalanceConfig config;
    config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
    config.stateless_when_full = stateless;
    auto made = make(config, small(1));
    TestPort port;
    for (unsigned n = 0; n < kClients; ++n) {
      port.add(packet(client(n), kVirtual), n / 10);
      port.add(packet(client(n), kVirtual, kAck), n / 10);
    }
    made.line->run(port);
    const std::uint64_t refused = made.line->counters().refused.value();
    EXPECT_GT(refused, 0U);
    EXPECT_EQ(count(made, stateless ? Verdict::stateless : Verdict::table_full), refused);
    EXPECT_EQ(port.sent.size(), stateless ? 2 * kClients : 2 * kClients - refused);
    if (stateless) {
      for (unsigned n = 0; n < kClients; ++n) {
        EXPECT_TRUE(destination_of(port.sent[2 * n]) == destination_of(port.sent[2 * n + 1]));
      }
    }
    check(made);
  }
}

// A client is first served without an entry. Later there is room for an entry, but its reply key
// would be that of another connection: the client must keep its backend.
TEST_P(LineTest, AnOverflowAndThenACollisionMoveNothing) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2}), service(kVirtual2, {1, 2})}};
  auto made = make(config, small(500));
  TestPort port;
  constexpr unsigned kClients = 100;
  for (unsigned n = 0; n < 2000; ++n) {
    const Endpoint filler{
        {198, 51, static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n)}, 9};
    port.add(packet(filler, kVirtual), 0);
  }
  for (unsigned n = 0; n < kClients; ++n) port.add(packet(client(n), kVirtual2), 10);
  for (unsigned n = 0; n < kClients; ++n) {
    port.add(packet(client(n), kVirtual), 3000);
    port.add(packet(client(n), kVirtual2, kAck), 3001);
  }
  made.line->run(port);
  ASSERT_EQ(port.sent.size(), 2000 + 3 * kClients);
  for (unsigned n = 0; n < kClients; ++n) {
    EXPECT_EQ(destination_of(port.sent[2000 + n]).address,
              destination_of(port.sent[2000 + kClients + 2 * n + 1]).address);
  }
  EXPECT_EQ(made.line->counters().collisions.value() > 0, GetParam().ageing != "none");
  check(made);
}

TEST_P(LineTest, UnmatchedTrafficPassesOrIsDropped) {
  for (const bool pass : {true, false}) {
    BalanceConfig config;
    config.services = {.v4 = {service(kVirtual, {1})}};
    LineConfig line_config = small();
    line_config.pass_unmatched = pass;
    auto made = make(config, line_config);
    TestPort port;
    const Bytes other = packet(client(1), {{198, 51, 100, 1}, 80});
    port.add(other, 0);
    port.add(ethernet(0x0806) + zeros(28), 0);
    port.add(packet(client(1), kVirtual), 0);
    made.line->run(port);
    ASSERT_EQ(port.sent.size(), pass ? 3U : 1U);
    if (pass) {
      EXPECT_EQ(port.sent[0], other);
    }
    EXPECT_EQ(count(made, Verdict::no_service), 1U);
    EXPECT_EQ(count(made, Verdict::not_ip), 1U);
    EXPECT_EQ(made.line->counters().out.value(), port.sent.size());
  }
}

TEST_P(LineTest, StatelessTracksNothing) {
  BalanceConfig config;
  config.stateful = false;
  auto made = make(config, small());
  TestPort port;
  for (unsigned n = 0; n < 50; ++n) port.add(packet(client(n), kVirtual), 0);
  made.line->run(port);
  EXPECT_EQ(count(made, Verdict::stateless), 50U);
  EXPECT_EQ(made.line->report_v4().memory_bytes, 0U);
  EXPECT_EQ(port.sent.size(), 50U);
}

// Packets of one new connection, several in one burst and more in later bursts, open it once.
TEST_P(LineTest, OneConnectionInOneBurstIsOneEntry) {
  Capture capture(CaptureFormat{});
  for (int i = 0; i < 60; ++i) {
    const Bytes p = packet(client(static_cast<unsigned>(i % 3)), kVirtual);
    ASSERT_TRUE(capture.append(0, static_cast<std::uint32_t>(p.size()), p).has_value());
  }
  auto made = make({}, small());
  auto port = ReplayPort::create(capture, {.burst = 64, .loops = 3});
  made.line->run(*port);
  EXPECT_EQ(made.line->counters().opened.value(), 3U);
  EXPECT_EQ(count(made, Verdict::tracked), 180U);
  check(made);
}

TEST(MakeLine, NamesWhatIsNotThereAndWhatIs) {
  auto balance = Balance::create({});
  LineConfig config{.capacity = 10, .capacity_v6 = 10};
  config.table = "cukoo";
  auto line = make_line(config, **balance);
  ASSERT_FALSE(line.has_value());
  EXPECT_EQ(line.error().kind, Error::Kind::usage);
  EXPECT_TRUE(line.error().message.starts_with("table \"cukoo\" is not known; there are: race, "))
      << line.error().message;
  config = {.ageing = "wheels", .capacity = 10, .capacity_v6 = 10};
  EXPECT_EQ(make_line(config, **balance).error().message,
            "ageing \"wheels\" is not known; there are: wheel, scan, lazy, none");
}

}  // namespace
}  // namespace millrace::test
