// Tests chains of functions on a line. In a chain whose other functions change no packet, a
// balancer must send what it sends alone.
#include "function/chain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "function/balance/balance.h"
#include "function/forward/forward.h"
#include "line_fixture.h"

namespace millrace::test {
namespace {

/// A function that counts the packets of each connection, drops a connection's packets beyond
/// `limit`, and refuses connections to port `kRefused`. Counts change by atomic additions, as they
/// must if workers share tables.
template <class K>
class CountFor final : public FunctionFor<K> {
 public:
  static constexpr std::uint16_t kRefused = 666;

  Part part() const override {
    return {.name = "count",
            .originator_bytes = sizeof(std::uint64_t),
            .reply_bytes = sizeof(std::uint64_t),
            .alignment = alignof(std::uint64_t),
            .image_bytes = sizeof(std::uint64_t)};
  }
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override {
    std::uint64_t begin = 0;
    for_each_bit(unknown, [&](unsigned i) {
      const bool is_refused = lane.key[i].destination_port == kRefused;
      if (is_refused) burst.verdict[lane.packet[i]] = Verdict::source_limit;
      begin |= std::uint64_t{!is_refused} << i;
    });
    return begin;
  }
  void open(const Burst&, Opening<K>& opening) override {
    if (opening.attempt > 0) return opening.refuse(Verdict::reply_collision);
    std::memset(opening.state, 0, sizeof(std::uint64_t));
    std::memset(opening.reply_state, 0, sizeof(std::uint64_t));
    opening.accept_two_way(reversed(opening.key));
    if (!opening.is_resumed) ++live;
  }
  Verdict event(Event event, const K&, const std::byte*, bool) override {
    if (event == Event::closed || event == Event::abandoned) --live;
    if (event == Event::adopted) ++live;
    return Verdict::tracked;
  }
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override {
    const Lane<K>& lane = burst.lane<K>();
    for_each_bit(places, [&](unsigned i) {
      if (lane.connection[i] == ConnId::none) {
        Verdict& verdict = burst.verdict[lane.packet[i]];
        if (verdict == Verdict::no_connection) verdict = Verdict::stateless;
        return;
      }
      auto* const counted = reinterpret_cast<std::uint64_t*>(states[lane.connection[i]]);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(counted) % alignof(std::uint64_t), 0U);
      const std::uint64_t now = std::atomic_ref(*counted).fetch_add(1) + 1;
      most = std::max(most, now);
      burst.verdict[lane.packet[i]] = now > limit ? Verdict::source_limit : Verdict::tracked;
    });
  }

  std::int64_t live = 0;
  std::uint64_t most = 0;
  std::uint64_t limit = UINT64_MAX;
};
class Count final : public Function {
 public:
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }
  CountFor<KeyV4> v4_;
  CountFor<KeyV6> v6_;
};

LineConfig line_config() {
  return {.capacity = 1000,
          .capacity_v6 = 20,
          .timeouts = Timeouts::all(100'000),
          .pages = Pages::small,
          .secret = Secret::from_seed(1),
          .catch_up = true};
}

/// A line with a balancer, alone or in a chain.
struct Played {
  std::unique_ptr<Balance> balance;
  Forwarder forward{FunctionRun{}};
  Count count;
  std::unique_ptr<Chain> chain;
  std::unique_ptr<Line> line;
  std::vector<Bytes> sent;

  /// Makes a line with the functions in `order`, as a chain if there are several: b is the
  /// balancer, f `forward`, c `count`.
  explicit Played(const std::string& order, bool is_direct = false) {
    BalanceConfig config;
    config.services = {.v4 = {service(kVirtual, {1, 2, 3}), service(kVirtual2, {1, 4})}};
    for (auto& one : config.services.v4) one.direct = is_direct;
    balance = std::move(*Balance::create(config));
    std::vector<Function*> functions;
    for (const char name : order) {
      functions.push_back(name == 'b'   ? static_cast<Function*>(balance.get())
                          : name == 'f' ? static_cast<Function*>(&forward)
                                        : &count);
    }
    if (functions.size() > 1) chain = std::make_unique<Chain>(functions);
    line = std::move(*make_line(line_config(), chain ? *chain : *functions.front()));
  }
  /// Runs `packets` through the line. Replaces `sent` by the packets that the line sends.
  void play(const std::vector<Bytes>& packets, std::uint32_t at_ms = 0) {
    TestPort port;
    for (const Bytes& p : packets) port.add(p, at_ms);
    line->run(port);
    sent = port.sent;
  }
  std::uint64_t verdicts(Verdict verdict) const {
    return line->counters().verdict[static_cast<std::size_t>(verdict)].value();
  }
  void check() const {
    const auto ok = line->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    const auto balanced = balance->check_invariants();
    EXPECT_TRUE(balanced.has_value()) << balanced.error().message;
  }
};

/// Makes random packets from clients to services and elsewhere, and from backends. Some packets
/// belong to connections, some do not.
class Traffic {
 public:
  explicit Traffic(std::uint64_t seed) : random_(seed) {}

  std::vector<Bytes> requests(std::size_t count) {
    std::vector<Bytes> all;
    for (std::size_t n = 0; n < count; ++n) {
      const Endpoint to = draw() % 3 == 0 ? kVirtual2 : kVirtual;
      all.push_back(packet(client(draw() % 300), to, flags(), draw() % 2));
      if (draw() % 5 == 0) all.push_back(packet(client(draw() % 300), elsewhere(), flags()));
    }
    return all;
  }
  /// Returns replies to some of the packets that a line has sent, and packets that random hosts of
  /// the backends' network send, mostly outside of connections.
  std::vector<Bytes> replies(const std::vector<Bytes>& sent) {
    std::vector<Bytes> all;
    for (const Bytes& p : sent) {
      if (draw() % 2 == 0) all.push_back(packet(destination_of(p), source_of(p), kAck, draw() % 3));
      if (draw() % 8 == 0)
        all.push_back(packet({{10, 0, 0, static_cast<std::uint8_t>(draw() % 6)}, 8080},
                             client(draw() % 300), flags(), draw() % 2));
    }
    return all;
  }

 private:
  unsigned draw() { return static_cast<unsigned>(random_() >> 8); }
  static Endpoint elsewhere() { return {{198, 51, 100, 9}, 25}; }
  std::uint8_t flags() {
    constexpr std::array<std::uint8_t, 5> kFlags{kSyn, kAck, kSyn | kAck, 4, kFin | kAck};
    return kFlags[draw() % kFlags.size()];
  }
  std::mt19937_64 random_;
};

// In a chain with functions that change no packet, a balancer sends the same packets as alone.
TEST(Chain, ForwardAndBalanceDoWhatBalanceDoes) {
  const testing::ScopedTrace repeat(__FILE__, __LINE__, test::repeat());
  for (const char* order : {"fb", "bf", "fbc"}) {
    Traffic traffic(test::seed());
    Played alone("b");
    Played chain(order);
    for (std::uint32_t round = 0; round < 20; ++round) {
      const auto requests = traffic.requests(100);
      alone.play(requests, round * 100);
      chain.play(requests, round * 100);
      ASSERT_EQ(alone.sent, chain.sent) << order << ", requests of round " << round;
      const auto replies = traffic.replies(alone.sent);
      alone.play(replies, round * 100 + 50);
      chain.play(replies, round * 100 + 50);
      ASSERT_EQ(alone.sent, chain.sent) << order << ", replies of round " << round;
    }
    const auto of_alone = alone.balance->statistics();
    const auto of_chain = chain.balance->statistics();
    for (std::size_t s = 0; s < of_alone.size(); ++s) {
      EXPECT_EQ(of_alone[s].established, of_chain[s].established);
      EXPECT_EQ(of_alone[s].stateless, of_chain[s].stateless);
      for (std::size_t b = 0; b < of_alone[s].backends.size(); ++b) {
        EXPECT_EQ(of_alone[s].backends[b].packets, of_chain[s].backends[b].packets);
        EXPECT_EQ(of_alone[s].backends[b].live, of_chain[s].backends[b].live);
      }
    }
    EXPECT_GT(chain.line->report_v4().live, alone.line->report_v4().live)
        << "connections to no service must be tracked, too";
    alone.check();
    chain.check();
  }
}

// A connection over the budget of half-open connections gets no entry, but its packets are sent on.
// If the table is full and `stateless_when_full` is false, packets of further connections are
// dropped.
TEST(Forward, SendsOnWhatIsOverTheBudget) {
  Forwarder forward({.stateless_when_full = false});
  LineConfig config = line_config();
  config.half_open_percent = 10;
  const auto sent_by = [](Line& line) {
    TestPort port;
    for (unsigned n = 0; n < 300; ++n) port.add(packet(client(n), kVirtual), 0);
    line.run(port);
    return port.sent.size();
  };
  const auto line = std::move(*make_line(config, forward));
  EXPECT_EQ(sent_by(*line), 300U);
  EXPECT_EQ(line->counters().over_budget.value(), 200U);
  EXPECT_EQ(line->counters().verdict[static_cast<std::size_t>(Verdict::stateless)].value(), 200U);
  config.half_open_percent = 100;
  config.capacity = 100;
  EXPECT_EQ(sent_by(**make_line(config, forward)), 100U);
}

TEST(Chain, WhatAFunctionRefusesIsNotInserted) {
  Played chain("cb");
  const Endpoint refused{kVirtual.address, CountFor<KeyV4>::kRefused};
  chain.play(
      {packet(client(1), refused), packet(client(1), kVirtual), packet(client(1), kVirtual)});
  EXPECT_EQ(chain.sent.size(), 2U);
  EXPECT_EQ(chain.verdicts(Verdict::source_limit), 1U);
  EXPECT_EQ(chain.line->report_v4().live, 1U);
  EXPECT_EQ(chain.count.v4_.live, 1);
  EXPECT_EQ(chain.count.v4_.most, 2U);
  chain.check();
}

// A packet that one function drops does not reach the chain's later functions, and stays dropped.
TEST(Chain, WhatIsDroppedMeetsNoOther) {
  for (const char* order : {"cb", "bc"}) {
    Played chain(order);
    chain.count.v4_.limit = 3;
    chain.play(std::vector(5, packet(client(1), kVirtual, kAck)));
    EXPECT_EQ(chain.sent.size(), 3U) << order;
    EXPECT_EQ(chain.verdicts(Verdict::source_limit), 2U) << order;
    std::uint64_t to_backends = 0;
    for (const auto& service : chain.balance->statistics())
      for (const auto& backend : service.backends) to_backends += backend.packets;
    EXPECT_EQ(to_backends, order[0] == 'c' ? 3U : 5U) << order;
    chain.check();
  }
}

// A connection from another process is counted when the chain adopts it, not before: if a later
// function of the chain refuses the connection, no function has counted it.
TEST(Chain, WhatIsNotResumedHasNotCounted) {
  Played chain("cb");
  const std::array<std::byte, sizeof(std::uint64_t)> counted{};
  const std::array<const std::byte*, 2> images{counted.data(), nullptr};
  CarriedConnection<KeyV4> told{.is_there = 1, .has_reply = 1};
  told.key = {.source = {{192, 0, 2, 1}},
              .destination = {kVirtual.address},
              .source_port = 1024,
              .destination_port = 80,
              .protocol = 6};
  EXPECT_EQ(chain.line->resume(told, images, 0), ConnId::none)
      << "the connection's backend is unknown";
  EXPECT_EQ(chain.count.v4_.live, 0);
  told.key.destination_port = 81;
  EXPECT_NE(chain.line->resume(told, images, 0), ConnId::none)
      << "the connection belongs to no service";
  EXPECT_EQ(chain.count.v4_.live, 1);
  chain.check();
}

// A packet from a service's address to a client must open no connection: the client's packets to
// the service would find that connection's reply entry.
TEST(Chain, NobodyOpensInAServicesName) {
  for (const char* order : {"fb", "bf"}) {
    Played chain(order);
    chain.play({packet(kVirtual, client(1), kSyn), packet(client(1), kVirtual, kAck),
                packet({{198, 51, 100, 9}, 25}, client(1))});
    ASSERT_EQ(chain.sent.size(), 3U) << order;
    EXPECT_EQ(destination_of(chain.sent[1]).port, 8080)
        << order << ": the packet must go to a backend";
    EXPECT_EQ(chain.verdicts(Verdict::no_service), 1U) << order;
    EXPECT_EQ(chain.line->report_v4().live, 2U) << order;
    EXPECT_EQ(chain.line->counters().refused.value(), 0U) << order;
    chain.check();
  }
}

// A backend may begin connections from any port but the one at which it serves. A packet from that
// port that belongs to no connection looks like a late reply: it is dropped, or with `direct` sent
// on without an entry.
TEST(Chain, ABackendBeginsNoConnectionWhereItServes) {
  for (const char* order : {"b", "fb", "bf"}) {
    for (const bool is_direct : {false, true}) {
      Played chain(order, is_direct);
      chain.play(
          {packet({{10, 0, 0, 1}, 8080}, client(1)), packet({{10, 0, 0, 1}, 9000}, client(1))});
      const bool tracks = order[1] != 0;
      EXPECT_EQ(chain.sent.size(), is_direct ? 2U : 1U) << order;
      EXPECT_EQ(chain.verdicts(Verdict::stray_reply), is_direct ? 0U : 1U) << order;
      EXPECT_EQ(chain.verdicts(Verdict::tracked), tracks ? 1U : 0U) << order;
      EXPECT_EQ(chain.line->report_v4().live, tracks ? 1U : 0U) << order;
      chain.check();
    }
  }
}

// Connections from one client address and port to two services have the same reply key if both get
// the same backend, at the same port. The balancer then chooses another backend, and no function
// keeps a count of the first attempt.
TEST(Chain, AfterACollisionWhoCanChoosesOtherwise) {
  for (const char* order : {"b", "bc", "cb", "bfc"}) {
    Played chain(order);
    // Each client sends to both services from one address and port. Both services have backend 1,
    // at the same port.
    std::vector<Bytes> packets;
    for (unsigned n = 0; n < 60; ++n) {
      packets.push_back(packet(client(n), kVirtual));
      packets.push_back(packet(client(n), kVirtual2));
    }
    chain.play(packets);
    EXPECT_EQ(chain.sent.size(), 120U) << order;
    EXPECT_GT(chain.line->counters().collisions.value(), 5U) << order;
    EXPECT_EQ(chain.line->report_v4().live, 120U) << order;
    if (std::string(order).contains('c')) {
      EXPECT_EQ(chain.count.v4_.live, 120) << order;
    }
    chain.check();
  }
}

// A packet that a sender sends to itself has the same key as its reply. `forward` has no other
// reply key, and lets the packet pass on untracked.
TEST(Chain, PassesOnWhatCollides) {
  for (const char* order : {"fb", "bf"}) {
    Played chain(order);
    chain.play({packet(client(1), client(1))});
    EXPECT_EQ(chain.sent.size(), 1U) << order;
    EXPECT_EQ(chain.verdicts(Verdict::passed), 1U) << order;
    EXPECT_EQ(chain.line->report_v4().live, 0U) << order;
    chain.check();
  }
}

TEST(Chain, NamesEachPartAndPutsThemOneBehindTheOther) {
  Played chain("bcf");
  const auto parts = chain.line->carried_parts();
  ASSERT_EQ(parts.size(), 8U) << "three of each family, and the heads of its records";
  EXPECT_EQ(parts[0].name(), "balance");
  EXPECT_EQ(parts[1].name(), "count");
  EXPECT_EQ(parts[2].name(), "forward");
  EXPECT_EQ(parts[6].family, kCarriedHead + 4);
  EXPECT_EQ(parts[7].family, kCarriedHead + 6);
  const Part whole = chain.chain->v4().part();
  EXPECT_EQ(whole.originator_bytes, 16U)
      << "two bytes of the balancer, then eight of `count` at offset 8";
  EXPECT_EQ(whole.alignment, 8U);
  EXPECT_EQ(whole.image_bytes, parts[0].image_bytes + 8U);
}

}  // namespace
}  // namespace millrace::test
