#include "function/balance/balance.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "core/address.h"
#include "function/balance/test_line.h"

namespace millrace {
namespace {

template <class K>
class BalanceTest : public TestServices<K> {
 public:
  using Line = BalanceLine<K>;
  using Spec = TestServices<K>::Spec;
  using Sent = typename Line::Sent;

  /// Returns the service at host v, port 80, with the backends that `names` spells.
  static Spec service(const std::string& names, const std::string& scheduler = "round-robin") {
    Spec spec{.address = Line::host('v'), .port = 80, .scheduler = scheduler, .backends = {}};
    for (const char name : names) spec.backends.push_back({.address = Line::host(name)});
    return spec;
  }
  static Spec everything(const std::string& names) {
    Spec spec = service(names);
    spec.address = {};
    spec.prefix_bits = 0;
    spec.port = 0;
    return spec;
  }
  static typename Line::Packet packet(const std::string& from, const std::string& to,
                                      std::uint8_t protocol = Line::kTcp,
                                      std::uint8_t flags = Line::kSyn) {
    return {from, to, protocol, flags};
  }
  static typename Line::Packet udp(const std::string& from, const std::string& to) {
    return packet(from, to, Line::kUdp);
  }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(BalanceTest, Families);

TYPED_TEST(BalanceTest, TakesAConnectionThereAndBack) {
  auto spec = TestFixture::service("a");
  spec.backends[0].port = 8080;
  typename TestFixture::Line line(TestFixture::config({spec}));
  auto out = line.send(TestFixture::packet("x:1000", "v:80"));
  EXPECT_EQ(out.verdict, Verdict::tracked);
  EXPECT_EQ(out.from + " " + out.to, "x:1000 a:8080");
  out = line.send(TestFixture::packet("a:8080", "x:1000"));
  EXPECT_EQ(out.verdict, Verdict::tracked);
  EXPECT_EQ(out.from + " " + out.to, "v:80 x:1000");
  const auto statistics = line.balance().statistics();
  ASSERT_EQ(statistics.size(), 1U);
  EXPECT_EQ(statistics[0].backends[0].packets, 1U);
  EXPECT_EQ(statistics[0].backends[0].replies, 1U);
  const std::uint64_t packet = line.burst().wire_length[0];
  EXPECT_EQ(statistics[0].backends[0].bytes, packet * statistics[0].backends[0].packets);
  EXPECT_EQ(statistics[0].backends[0].reply_bytes, packet);
  EXPECT_EQ(statistics[0].backends[0].connections, 1U);
  EXPECT_EQ(statistics[0].backends[0].live, 1U);
}

TYPED_TEST(BalanceTest, LeavesWhatConcernsItNot) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("ab")}));
  auto out = line.send(TestFixture::packet("x:1000", "v:81"));
  EXPECT_EQ(out.verdict, Verdict::no_service);
  EXPECT_EQ(out.to, "v:81");
  // An echo's identifier is no port.
  EXPECT_EQ(line.send(TestFixture::packet("x:80", "v:80", 1)).verdict, Verdict::no_service);
  typename TestFixture::Line none(TestFixture::config({}));
  EXPECT_EQ(none.send(TestFixture::packet("x:1000", "v:80")).verdict, Verdict::no_service);
  EXPECT_FALSE(none.function().part().replies);
}

TYPED_TEST(BalanceTest, PortsStayWhereProtocolsHaveNone) {
  auto spec = TestFixture::service("a");
  spec.port = 0;
  spec.backends[0].port = 8080;
  typename TestFixture::Line line(TestFixture::config({spec}));
  constexpr std::uint8_t kIcmp = 1;
  EXPECT_EQ(line.send(TestFixture::packet("x:7", "v:7", kIcmp)).to, "a:7");
  const auto out = line.send(TestFixture::packet("a:7", "x:7", kIcmp));
  EXPECT_EQ(out.verdict, Verdict::tracked);
  EXPECT_EQ(out.from, "v:7");
}

TYPED_TEST(BalanceTest, BackendsHaveTheirConfiguredNames) {
  auto spec = TestFixture::service("aab");
  spec.port = 0;
  spec.backends[1].port = 8000;
  spec.backends[2].port = 8000;
  typename TestFixture::Line line(TestFixture::config({spec}));
  const auto& plan = line.balance().plan()->template family<TypeParam>();
  const auto host = [](char name) { return TestFixture::Line::host(name); };
  const auto name = [&](char to, std::uint16_t port, std::uint8_t protocol) {
    const TypeParam key{
        .source = host('x'), .destination = host('v'), .source_port = 1, .protocol = protocol};
    TypeParam translated = key;
    translated.destination = host(to);
    translated.destination_port = port;
    return plan.backend_name(key, translated);
  };
  EXPECT_EQ(name('a', 80, TestFixture::Line::kTcp), with_port(host('a'), 0));
  EXPECT_EQ(name('a', 8000, TestFixture::Line::kTcp), with_port(host('a'), 8000));
  EXPECT_EQ(name('b', 8000, TestFixture::Line::kTcp), with_port(host('b'), 8000));
  EXPECT_EQ(name('b', 7, 1), with_port(host('b'), 8000)) << "an echo's identifier is no port";
  EXPECT_EQ(name('c', 80, TestFixture::Line::kTcp), with_port(host('c'), 80)) << "not configured";
}

TYPED_TEST(BalanceTest, APrefixIsOneWay) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::everything("ab")}));
  EXPECT_FALSE(line.function().part().replies);
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "y:2")).to, "a:2");
  EXPECT_EQ(line.send(TestFixture::packet("y:2", "x:1")).to, "b:1");
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "y:2")).to, "a:2");
}

TYPED_TEST(BalanceTest, RepliesAreToldFromWhatACatchAllTakes) {
  typename TestFixture::Line line(
      TestFixture::config({TestFixture::service("a"), TestFixture::everything("m")}));
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "v:80")).to, "a:80");
  EXPECT_EQ(line.send(TestFixture::packet("a:80", "x:1")).from, "v:80");
  EXPECT_EQ(line.send(TestFixture::packet("y:80", "x:1")).to, "m:1");
}

TYPED_TEST(BalanceTest, ScreensAndSteersByEnds) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("a")}));
  auto& lane = line.burst().template lane<TypeParam>();
  // `o`: to the service; `r`: from its backend's service port; `b` and `c`: from and to another
  // port of the backend; `n`: between other hosts.
  const std::string kinds = "ororrbcn";
  const auto key = [](char kind, std::uint16_t port) {
    TypeParam of{.source = TestFixture::Line::host(kind == 'r' || kind == 'b' ? 'a' : 'x'),
                 .destination = TestFixture::Line::host(kind == 'o'   ? 'v'
                                                        : kind == 'c' ? 'a'
                                                                      : 'x'),
                 .source_port = port,
                 .destination_port = port,
                 .protocol = 6};
    if (kind == 'o') of.destination_port = 80;
    if (kind == 'r') of.source_port = 80;
    return of;
  };
  for (unsigned i = 0; i < kinds.size(); ++i) {
    lane.packet[i] = static_cast<std::uint8_t>(10 + i);
    lane.key[i] = key(kinds[i], static_cast<std::uint16_t>(5000 + i));
    line.burst().verdict[10 + i] = Verdict::tracked;
  }
  lane.size = static_cast<unsigned>(kinds.size());
  lane.replies = 0;
  const auto steered = line.function().steer(lane.keys(), {});
  EXPECT_EQ(steered.by_source, 0b01000101U);
  EXPECT_EQ(steered.by_destination, 0b00111010U);
  // The first two packets have an entry.
  EXPECT_EQ(line.function().screen(line.burst(), lane, 0b11111100), 0b00000100U);
  EXPECT_EQ(lane.replies, 0b00011000U);
  for (unsigned i = 0; i < kinds.size(); ++i) {
    const bool is_nobodys = i >= 5;
    EXPECT_EQ(line.burst().verdict[10 + i], is_nobodys ? Verdict::no_service : Verdict::tracked);
  }
}

TYPED_TEST(BalanceTest, SchedulesBeginningsAndSendsTheRestWhereMaglevSays) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("abcdefgh")}));
  typename TestFixture::Line maglev(
      TestFixture::config({TestFixture::service("abcdefgh", "maglev")}));
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "v:80")).to, "a:80");
  EXPECT_EQ(line.send(TestFixture::packet("x:2", "v:80")).to, "b:80");
  EXPECT_EQ(line.send(TestFixture::udp("x:3", "v:80")).to, "c:80");
  for (int port = 100; port < 130; ++port) {
    const auto middle = TestFixture::packet("x:" + std::to_string(port), "v:80",
                                            TestFixture::Line::kTcp, TestFixture::Line::kAck);
    EXPECT_EQ(line.send(middle).to, maglev.send(middle).to);
  }
  EXPECT_EQ(line.send(TestFixture::packet("x:4", "v:80")).to, "d:80");
  const auto syn_ack = TestFixture::packet("x:5", "v:80", TestFixture::Line::kTcp,
                                           TestFixture::Line::kSyn | TestFixture::Line::kAck);
  EXPECT_EQ(line.send(syn_ack).to, maglev.send(syn_ack).to);
}

// The services share backends: two connections from one client port, to two services, have one
// reply key if they go to the same backend.
TYPED_TEST(BalanceTest, ACollisionGetsAnotherBackendUntilAllWereTried) {
  auto second = TestFixture::service("ab");
  second.address = TestFixture::Line::host('w');
  auto third = TestFixture::service("ab");
  third.address = TestFixture::Line::host('u');
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("ab"), second, third}));
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "v:80")).to, "a:80");
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "w:80")).to, "b:80");
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "u:80")).verdict, Verdict::reply_collision);
  EXPECT_EQ(line.send(TestFixture::packet("a:80", "x:1")).from, "v:80");
  EXPECT_EQ(line.send(TestFixture::packet("b:80", "x:1")).from, "w:80");
  const auto statistics = line.balance().statistics();
  EXPECT_EQ(statistics[1].collisions, 1U);
  EXPECT_EQ(statistics[1].backends[0].live, 0U);
  EXPECT_EQ(statistics[1].backends[0].connections, 0U);
  EXPECT_EQ(statistics[1].backends[1].live, 1U);
  EXPECT_EQ(statistics[2].collisions, 2U);
  EXPECT_EQ(statistics[2].refused, 1U);
  for (const auto& backend : statistics[2].backends) {
    EXPECT_EQ(backend.live, 0U);
    EXPECT_EQ(backend.connections, 0U) << "a refused connection counts at no backend";
  }
}

TYPED_TEST(BalanceTest, AConnectionThatFindsNoPlaceForItsRepliesWasNotGiven) {
  auto config = TestFixture::config({TestFixture::service("a")});
  typename TestFixture::Line line(config);
  line.replies_full = true;
  EXPECT_EQ(line.send(TestFixture::udp("x:1", "v:80")).verdict, Verdict::stateless);
  line.replies_full = false;
  EXPECT_EQ(line.send(TestFixture::udp("x:2", "v:80")).verdict, Verdict::tracked);
  const auto backend = line.balance().statistics()[0].backends[0];
  EXPECT_EQ(backend.connections, 1U);
  EXPECT_EQ(backend.live, 1U);
}

/// Returns the service with `count` backends, at ports 1, 2, ... of the virtual address itself.
template <class Spec>
Spec with_backends(Spec spec, unsigned count) {
  const auto host = spec.address;
  for (unsigned port = 1; port <= count; ++port) {
    spec.backends.push_back({.address = host, .port = static_cast<std::uint16_t>(port)});
  }
  return spec;
}

TYPED_TEST(BalanceTest, CollisionsTryEveryBackendOfMany) {
  constexpr unsigned kBackends = 300;
  auto spec = with_backends(TestFixture::service(""), kBackends);
  typename TestFixture::Line line(TestFixture::config({spec}));
  Opening<TypeParam> opening;
  opening.key = {.source = TestFixture::Line::host('x'),
                 .destination = spec.address,
                 .source_port = 1,
                 .destination_port = 80,
                 .protocol = TestFixture::Line::kUdp};
  std::array<std::byte, 64> state{};
  std::array<std::byte, 64> reply_state{};
  opening.state = state.data();
  opening.reply_state = reply_state.data();
  std::set<std::uint16_t> tried;
  for (;; ++opening.attempt) {
    line.function().open(line.burst(), opening);
    if (opening.decision == Opening<TypeParam>::Decision::refused) break;
    tried.insert(opening.reply_key.source_port);
    ASSERT_LT(opening.attempt, kBackends);
  }
  EXPECT_EQ(opening.refusal, Verdict::reply_collision);
  EXPECT_EQ(tried.size(), kBackends);
  line.function().event(Event::abandoned, opening.key, opening.state, false);
  const auto statistics = line.balance().statistics();
  for (const auto& backend : statistics[0].backends) {
    EXPECT_EQ(backend.connections + backend.live, 0U);
  }
}

// A backend that stays takes one id, not a second one as a draining backend.
TYPED_TEST(BalanceTest, ManyLiveBackendsStayInAnUpdate) {
  constexpr unsigned kServices = 40;
  constexpr unsigned kBackends = 1000;
  std::vector<typename TestFixture::Spec> specs;
  for (unsigned i = 0; i < kServices; ++i) {
    specs.push_back(with_backends(TestFixture::service(""), kBackends));
    specs.back().port = static_cast<std::uint16_t>(1 + i);
  }
  auto config = TestFixture::config(specs);
  config.maglev_table_size = 1009;
  typename TestFixture::Line line(config);
  std::array<std::byte, 64> state{};
  Opening<TypeParam> opening;
  std::array<std::byte, 64> reply_state{};
  opening.state = state.data();
  opening.reply_state = reply_state.data();
  for (unsigned n = 0; n < kServices * kBackends; ++n) {  // one connection for each backend
    opening.key = {.source = TestFixture::Line::host('x'),
                   .destination = specs[0].address,
                   .source_port = static_cast<std::uint16_t>(n / kServices),
                   .destination_port = static_cast<std::uint16_t>(1 + n % kServices),
                   .protocol = TestFixture::Line::kUdp};
    line.function().open(line.burst(), opening);
  }
  line.update(TestFixture::only(specs));
  EXPECT_EQ(line.balance().statistics()[0].backends[0].live, 1U);
  // All backends drain, and as many new ones come: together more than there are ids.
  for (auto& spec : specs) {
    for (auto& backend : spec.backends) backend.address = TestFixture::Line::host('b');
  }
  const auto other = line.try_update(TestFixture::only(specs));
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("those that drain included"), std::string::npos);
}

TYPED_TEST(BalanceTest, SchedulersGoOnWhereTheirBackendsStay) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service("abc")}));
  EXPECT_EQ(line.send(TestFixture::udp("x:1", "v:80")).to, "a:80");
  auto other =
      TestFixture::service("mnop");  // adding its backends must not move those of abc in memory
  other.address = TestFixture::Line::host('w');
  line.update(TestFixture::only({TestFixture::service("abc"), other}));
  EXPECT_EQ(line.send(TestFixture::udp("x:2", "v:80")).to, "b:80");
  line.prove_all();
  auto least = TestFixture::service("abc", "least-connections");
  line.update(TestFixture::only({least}));
  EXPECT_EQ(line.send(TestFixture::udp("x:3", "v:80")).to, "c:80") << "the only idle backend";
  EXPECT_EQ(line.send(TestFixture::udp("x:4", "v:80")).to, "a:80");
  other.backends.insert(other.backends.end(), 20, other.backends[0]);
  for (std::uint16_t i = 0; i < other.backends.size(); ++i) other.backends[i].port = i;
  line.update(TestFixture::only({least, other}));
  line.close(TestFixture::udp("x:2", "v:80"));
  EXPECT_EQ(line.send(TestFixture::udp("x:5", "v:80")).to, "b:80") << "counters are still read";
}

TYPED_TEST(BalanceTest, AServiceThatDrainsHidesNoOther) {
  typename TestFixture::Line line(
      TestFixture::config({TestFixture::service("a"), TestFixture::everything("m")}));
  EXPECT_EQ(line.send(TestFixture::udp("x:1", "v:80")).to, "a:80");
  line.update(TestFixture::only({TestFixture::everything("m")}));
  EXPECT_EQ(line.send(TestFixture::udp("x:1", "v:80")).to, "a:80");
  EXPECT_EQ(line.send(TestFixture::udp("a:80", "x:1")).from, "v:80");
  EXPECT_EQ(line.send(TestFixture::udp("x:2", "v:80")).to, "m:80");
  line.full = true;
  EXPECT_EQ(line.send(TestFixture::udp("x:3", "v:80")).to, "m:80");
}

TYPED_TEST(BalanceTest, RefusesWithoutBackends) {
  auto weightless = TestFixture::service("ab");
  for (auto& backend : weightless.backends) backend.weight = 0;
  auto unhealthy = TestFixture::service("ab");
  for (auto& backend : unhealthy.backends) backend.is_healthy = false;
  for (auto spec : {weightless, unhealthy, TestFixture::service("")}) {
    for (const auto how : {NoBackend::refuse, NoBackend::drop, NoBackend::pass}) {
      spec.no_backend = how;
      typename TestFixture::Line line(TestFixture::config({spec}));
      const Verdict verdict = without_backend(how);
      EXPECT_EQ(line.send(TestFixture::packet("x:1", "v:80")).verdict, verdict);
      line.full = true;
      const auto out = line.send(TestFixture::packet("x:1", "v:80"));
      EXPECT_EQ(out.verdict, verdict);
      EXPECT_EQ(out.to, "v:80");
      EXPECT_EQ(line.balance().statistics()[0].refused, how == NoBackend::pass ? 0U : 2U);
    }
  }
}

TYPED_TEST(BalanceTest, AFullTableServesByMaglevOrDrops) {
  typename TestFixture::Line maglev(
      TestFixture::config({TestFixture::service("abcdefgh", "maglev")}));
  auto config = TestFixture::config({TestFixture::service("abcdefgh")});
  typename TestFixture::Line line(config);
  line.full = true;
  const auto first = TestFixture::packet("x:1", "v:80");
  const auto out = line.send(first);
  EXPECT_EQ(out.verdict, Verdict::stateless);
  EXPECT_EQ(out.to, maglev.send(first).to);
  config.stateless_when_full = false;
  typename TestFixture::Line drops(config);
  drops.full = true;
  EXPECT_EQ(drops.send(first).verdict, Verdict::table_full);
}

// A connection that began without an entry keeps its backend when a place becomes free: whatever
// the protocol, SYN retransmissions included.
TYPED_TEST(BalanceTest, WhatBeganStatelessKeepsItsBackend) {
  auto config = TestFixture::config({TestFixture::service("abcdefgh")});
  config.quiet_ms = 1000;
  for (const std::uint32_t start : {0U, 0xffffff00U}) {  // the second time the tick wraps
    for (const std::uint8_t protocol : {TestFixture::Line::kTcp, TestFixture::Line::kUdp}) {
      typename TestFixture::Line line(config);
      for (int port = 1; port < 20; ++port) {
        const auto packet = TestFixture::packet("x:" + std::to_string(port), "v:80", protocol);
        line.at(start);
        line.full = true;
        const std::string to = line.send(packet).to;
        line.full = false;
        line.at(start + 999);
        const auto out = line.send(packet);
        EXPECT_EQ(out.verdict, Verdict::tracked);
        EXPECT_EQ(out.to, to);
      }
      line.at(start + 1001);
      EXPECT_EQ(line.send(TestFixture::packet("x:100", "v:80", protocol)).to, "a:80");
      EXPECT_EQ(line.send(TestFixture::packet("x:101", "v:80", protocol)).to, "b:80");
    }
  }
}

TYPED_TEST(BalanceTest, StatelessModeServesEverythingByMaglev) {
  auto config = TestFixture::config({TestFixture::service("abcdefgh", "maglev")});
  typename TestFixture::Line maglev(config);
  config.stateful = false;
  typename TestFixture::Line line(config);
  EXPECT_FALSE(line.balance().stateful());
  std::set<std::string> used;
  for (int port = 1; port < 100; ++port) {
    const auto packet = TestFixture::udp("x:" + std::to_string(port), "v:80");
    const auto out = line.send(packet);
    EXPECT_EQ(out.verdict, Verdict::stateless);
    EXPECT_EQ(out.to, maglev.send(packet).to);
    used.insert(out.to);
  }
  EXPECT_EQ(used.size(), 8U);
  const auto reply = line.send(TestFixture::udp("a:80", "x:1"));
  EXPECT_EQ(reply.verdict, Verdict::no_service);
  EXPECT_EQ(reply.from, "a:80");
}

TYPED_TEST(BalanceTest, UpdatesMoveNoConnection) {
  for (const SchedulerKind& kind : schedulers()) {
    const std::string scheduler(kind.name);
    typename TestFixture::Line line(TestFixture::config({TestFixture::service("abc", scheduler)}));
    std::map<std::string, std::string> backend;
    const auto client = [](int i) { return "x:" + std::to_string(i); };
    for (int i = 1; i < 50; ++i)
      backend[client(i)] = line.send(TestFixture::udp(client(i), "v:80")).to;
    const auto check = [&](const char* after) {
      for (const auto& [from, to] : backend) {
        EXPECT_EQ(line.send(TestFixture::udp(from, "v:80")).to, to) << scheduler << after;
        EXPECT_EQ(line.send(TestFixture::udp(to, from)).from, "v:80") << scheduler << after;
      }
    };
    line.update(TestFixture::only({TestFixture::service("db", scheduler)}));
    check(" after two left and one came");
    for (int i = 100; i < 150; ++i) {
      const std::string to = line.send(TestFixture::udp(client(i), "v:80")).to;
      EXPECT_TRUE(to == "d:80" || to == "b:80") << scheduler << " new connection to " << to;
    }
    line.update(TestFixture::only({}));
    check(" after its service was removed");
    EXPECT_EQ(line.send(TestFixture::udp("x:200", "v:80")).verdict, Verdict::no_service);
    line.update(TestFixture::only({TestFixture::service("efgabc", scheduler)}));
    check(" after its service came back");
  }
}

TYPED_TEST(BalanceTest, DrainedBackendsAreForgottenAndTheirIdsReused) {
  typename TestFixture::Line line(
      TestFixture::config({TestFixture::service("a", "least-connections")}));
  line.send(TestFixture::udp("x:1", "v:80"));
  line.send(TestFixture::udp("x:2", "v:80"));
  line.update(TestFixture::only({TestFixture::service("b", "least-connections")}));
  auto backends = line.balance().statistics()[0].backends;
  ASSERT_EQ(backends.size(), 2U);
  EXPECT_TRUE(backends[1].draining);
  EXPECT_EQ(backends[1].live, 2U);
  line.close(TestFixture::udp("x:1", "v:80"));
  line.close(TestFixture::udp("x:2", "v:80"));
  for (const char* names : {"b", "bc", "c", "a"}) {
    line.update(TestFixture::only({TestFixture::service(names, "least-connections")}));
    ASSERT_TRUE(line.balance().check_invariants().has_value());
  }
  backends = line.balance().statistics()[0].backends;
  ASSERT_EQ(backends.size(), 1U);
  EXPECT_EQ(backends[0].connections, 0U) << "a backend that was forgotten counts from 0";
}

TYPED_TEST(BalanceTest, ReturningBackendsKeepTheirCount) {
  typename TestFixture::Line line(
      TestFixture::config({TestFixture::service("ab", "least-connections")}));
  for (int i = 0; i < 4; ++i) line.send(TestFixture::udp("x:" + std::to_string(i), "v:80"));
  line.prove_all();
  line.update(TestFixture::only({TestFixture::service("b", "least-connections")}));
  line.update(TestFixture::only({TestFixture::service("ab", "least-connections")}));
  line.close(TestFixture::udp("x:1", "v:80"));
  EXPECT_EQ(line.send(TestFixture::udp("x:9", "v:80")).to, "b:80") << "a has two, b has one left";
}

TYPED_TEST(BalanceTest, RefusesWhatMakesNoSense) {
  const auto message = [](const BalanceConfig& config) {
    const auto balance = Balance::create(config);
    return balance ? "" : balance.error().message;
  };
  const auto has = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text;
  };
  has(message(TestFixture::config({TestFixture::service("a"), TestFixture::service("b")})),
      "is there twice");
  has(message(TestFixture::config({TestFixture::service("aa")})), "is there twice");
  has(message(TestFixture::config({TestFixture::service("a", "fastest")})), "no scheduler");
  auto config = TestFixture::config({TestFixture::service("abcd")});
  config.maglev_table_size = 4;
  has(message(config), "prime");
  config.maglev_table_size = 3;
  has(message(config), "more backends");
  typename TestFixture::Line line(TestFixture::config({TestFixture::everything("a")}));
  const auto update = line.try_update(TestFixture::only({TestFixture::service("a")}));
  ASSERT_FALSE(update.has_value());
  has(update.error().message, "restart");
  EXPECT_EQ(line.send(TestFixture::packet("x:1", "y:2")).to, "a:2") << "nothing has changed";
}

}  // namespace
}  // namespace millrace
