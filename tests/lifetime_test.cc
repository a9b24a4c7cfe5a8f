// Tests lifetimes of connections: campus traffic passes through whole lines in simulated time, each
// ageing scheme against an oracle that sees every packet and every removal. No connection may be
// removed before its timeout, and none may be kept for longer after it than the slack that
// docs/ageing.md states.
//
// MILLRACE_LIFETIME_CONNECTIONS is the number of connections for each scheme; 100,000 if it is not
// set (a tenth under a sanitizer). 1000 or more are needed, so that some connections time out in
// every phase (`Phase`: states with one timeout). A run with 10,000,000 took 20 minutes in all and
// 2 GiB at most, on a busy machine. MILLRACE_TEST_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include "conntrack/test_support.h"
#include "core/test_sanitizers.h"
#include "function/function.h"
#include "lifetime_oracle.h"
#include "line/line.h"
#include "port/port.h"
#include "traffic/generate.h"

namespace millrace {
namespace {

using test::Client;
using test::Oracle;

std::uint64_t connections() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("MILLRACE_LIFETIME_CONNECTIONS");
    if (given != nullptr) return std::strtoull(given, nullptr, 0);
    return kSanitized ? 10'000ULL : 100'000ULL;
  }();
  return value;
}

constexpr std::uint64_t kPacketsPerConnection = 8;
/// Time is stretched 50 times: round trips take 50 ms to 10 s, and gaps 10 ms to 2.5 s on average.
/// Timeouts of seconds therefore pass within conversations, too.
constexpr std::uint64_t kNsPerTick = 20'000;
constexpr std::uint32_t kTraceSeconds = 5;

struct Scheme {
  std::string name;
  std::string ageing;
  std::uint32_t interval_ms;
  std::optional<std::uint32_t> slack_ms;  ///< none: no connection is removed
  bool meets_expired;
  /// Connections for each place in the tables. At most 1 connection in 40 is live at a time, except
  /// under `none`, where all stay live.
  std::uint64_t connections_a_place;
};
void PrintTo(const Scheme& scheme, std::ostream* to) { *to << scheme.name; }

Timeouts timeouts() {
  using enum ConnectionState;
  using test::Phase;
  Timeouts timeouts;
  const auto set = [&](Phase phase, std::initializer_list<ConnectionState> states) {
    for (const ConnectionState state : states)
      timeouts.ms[static_cast<std::size_t>(state)] = test::timeout_of(phase).ms;
  };
  set(Phase::syn_sent, {none, syn_sent, syn_sent2});
  set(Phase::syn_received, {syn_received});
  set(Phase::established, {established});
  set(Phase::half_closed, {fin_wait, fin_wait_reply, close_wait, close_wait_reply});
  set(Phase::last_ack, {last_ack});
  set(Phase::time_wait, {time_wait});
  set(Phase::reset, {closed});
  set(Phase::midstream, {midstream});
  set(Phase::udp_unreplied, {udp_unreplied});
  set(Phase::udp, {udp});
  set(Phase::udp_stream, {udp_stream});
  set(Phase::icmp_unreplied, {icmp_unreplied});
  set(Phase::icmp, {icmp});
  return timeouts;
}

/// A function that passes all packets unchanged, and reports them to the oracle. The state of a
/// connection is its client's number.
template <class K>
class WatchFor final : public FunctionFor<K> {
 public:
  explicit WatchFor(Oracle& oracle) : oracle_(oracle) {}

  Part part() const override {
    return {.name = "watch", .originator_bytes = sizeof(Client), .reply_bytes = sizeof(Client)};
  }

  std::uint64_t screen(Burst&, Lane<K>& lane, std::uint64_t unknown) override {
    for_each_bit(unknown, [&lane](unsigned i) {
      lane.replies |= std::uint64_t{is_server(lane.key[i].source)} << i;
    });
    return unknown & ~lane.replies;
  }
  void open(const Burst& burst, Opening<K>& opening) override {
    oracle_.at(burst.now);
    const Client client = client_at(opening.key.source, opening.key.source_port);
    std::memcpy(opening.state, &client, sizeof client);
    std::memcpy(opening.reply_state, &client, sizeof client);
    opening.accept_two_way(reversed(opening.key));
    oracle_.begins(client);
  }
  void serve(Burst& burst, std::uint64_t, const States<K>& states) override {
    oracle_.at(burst.now);
    const auto& lane = burst.lane<K>();
    for (unsigned i = 0; i < lane.size; ++i) {
      const K& key = lane.key[i];
      const bool is_back = lane.side(i) == Side::reply;
      pass(burst, lane, i, states,
           is_back ? client_at(key.destination, key.destination_port)
                   : client_at(key.source, key.source_port));
    }
  }
  Verdict event(Event event, const K&, const std::byte* state, bool) override {
    if (event == Event::closed) oracle_.removed(client_in(state));
    if (event == Event::abandoned)
      oracle_.fault(client_in(state), "was abandoned when it was opened");
    return Verdict::tracked;
  }

 private:
  static bool is_server(const typename K::Address& address) {  // 198.19.0.0/16, 2001:db8:19::/48
    constexpr bool kV4 = K::Address::kBytes == 4;
    return address.bytes[kV4 ? 1 : 5] == (kV4 ? 19 : 0x19);
  }
  static Client client_at(const typename K::Address& address, std::uint16_t port) {
    const auto& bytes = address.bytes;
    return Client{bytes[bytes.size() - 2]} << 24 | Client{bytes.back()} << 16 | port;
  }
  static Client client_in(const std::byte* state) {
    Client client;
    std::memcpy(&client, state, sizeof client);
    return client;
  }
  /// Returns what the oracle needs to know of a packet, which must have no IP options or extension
  /// headers.
  static test::Heard heard(const K& key, const std::byte* l4) {
    const auto u8 = [l4](int at) { return std::to_integer<std::uint8_t>(l4[at]); };
    constexpr bool kV4 = K::Address::kBytes == 4;
    constexpr int kLength = kV4 ? -18 : -36;
    const int length = (u8(kLength) << 8 | u8(kLength + 1)) - (kV4 ? 20 : 0);
    return {is_server(key.source), key.protocol, u8(13), length > (u8(12) >> 4) * 4};
  }
  void pass(Burst& burst, const Lane<K>& lane, unsigned i, const States<K>& states, Client client) {
    const unsigned packet = lane.packet[i];
    const ConnId id = lane.connection[i];
    const bool met = id != ConnId::none;
    if (met && client_in(states[id]) != client)
      oracle_.fault(client, "has the entry of another client");
    oracle_.passes(client, heard(lane.key[i], burst.data[packet] + burst.headers[packet].l4), met);
    burst.verdict[packet] = met ? Verdict::tracked : Verdict::stateless;
  }

  Oracle& oracle_;
};

class Watch final : public Function {
 public:
  explicit Watch(Oracle& oracle) : v4_(oracle), v6_(oracle) {}
  bool stateful() const override { return true; }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

 private:
  WatchFor<KeyV4> v4_;
  WatchFor<KeyV6> v6_;
};

/// A port that receives a generator's packets: at least one burst each tick, which may be empty.
class GeneratorPort final : public Port {
 public:
  /// `idle_ms` ticks follow the last packet.
  GeneratorPort(Generator& generator, std::uint32_t idle_ms)
      : generator_(generator), idle_ms_(idle_ms) {}
  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    auto& slots = slots_[ring_++ % kBurstsInFlight];
    burst.size = 0;
    burst.now = Tick{now_};
    for (; has_next_ && tick_of_next() == now_ && burst.size < Burst::kMax; ++burst.size) {
      std::byte* to = slots[burst.size].data() + kHeadroom;
      std::ranges::copy(next_.bytes, to);
      burst.data[burst.size] = to;
      burst.length[burst.size] = static_cast<std::uint16_t>(next_.bytes.size());
      burst.wire_length[burst.size] = next_.wire_length;
      has_next_ = generator_.next(next_);
    }
    if (!has_next_ && idle_ms_-- == 0) return false;
    if (!has_next_ || tick_of_next() > now_) ++now_;
    return true;
  }
  void send(const Burst&, std::uint64_t) override {}

 private:
  static constexpr std::size_t kHeadroom = 128;
  using Slot = std::array<std::byte, kHeadroom + TrafficPlan{}.snaplen>;

  std::uint64_t tick_of_next() const { return (next_.timestamp_ns - start_ns_) / kNsPerTick; }

  Generator& generator_;
  std::uint32_t idle_ms_;
  Generator::Packet next_{};
  bool has_next_ = generator_.next(next_);
  std::uint64_t start_ns_ = next_.timestamp_ns;
  std::uint32_t now_ = 0;
  unsigned ring_ = 0;
  std::array<std::array<Slot, Burst::kMax>, kBurstsInFlight> slots_;
};

class LifetimeTest : public testing::TestWithParam<Scheme> {
 protected:
  static Result<std::unique_ptr<Line>> make(Watch& watch) {
    const std::uint64_t places = connections() / GetParam().connections_a_place;
    return make_line({.ageing = GetParam().ageing,
                      .capacity = places * 4 / 5 + 1000,  // three quarters of connections are IPv4
                      .capacity_v6 = places * 3 / 10 + 1000,
                      .timeouts = timeouts(),
                      .interval_ms = GetParam().interval_ms,
                      .pages = Pages::transparent,
                      .secret = Secret::from_seed(test::seed()),
                      .catch_up = true},
                     watch);
  }
  static void report(const Oracle& oracle, const Line& line) {
    std::cout << GetParam().name << ": " << oracle.now_ms() << " ms, " << oracle.begun
              << " begun, at most " << line.counters().peak.value() << " at once, "
              << oracle.kept_by_late_packets << " kept by late packets, " << oracle.removals
              << " removed";
    if (oracle.removals > 0)
      std::cout << ' ' << oracle.earliest_ms << " to " << oracle.latest_ms << " ms late";
    for (std::size_t i = 0; oracle.removals > 0 && i < test::kPhases.size(); ++i)
      std::cout << ", " << test::kPhases[i].name << ' ' << oracle.removals_in[i];
    std::cout << '\n';
  }
};

TEST_P(LifetimeTest, NoneIsRemovedBeforeItsTimeoutAndNoneIsKeptLongAfter) {
  SCOPED_TRACE(test::repeat());
  const auto slack_ms = GetParam().slack_ms;
  Oracle oracle(slack_ms, GetParam().meets_expired);
  Watch watch(oracle);
  const auto line = make(watch);
  ASSERT_TRUE(line.has_value()) << line.error().message;
  auto generator = Generator::create({.connections = connections(),
                                      .packets = kPacketsPerConnection * connections(),
                                      .seed = test::seed(),
                                      .duration_s = kTraceSeconds});
  ASSERT_TRUE(generator.has_value()) << generator.error().message;
  const std::uint32_t longest_ms = std::ranges::max(test::kPhases, {}, &test::PhaseTimeout::ms).ms;
  GeneratorPort port(*generator, longest_ms + slack_ms.value_or(0) + 1);
  (*line)->run(port);
  oracle.ends();
  report(oracle, **line);

  const WorkerCounters& counters = (*line)->counters();
  EXPECT_EQ(oracle.faults, 0U);
  EXPECT_EQ(counters.in.value(), kPacketsPerConnection * connections());
  EXPECT_EQ(counters.refused.value(), 0U);
  EXPECT_EQ(counters.opened.value(), oracle.begun);
  EXPECT_EQ(counters.ended(), oracle.removals);
  EXPECT_EQ((*line)->live().v4 + (*line)->live().v6, oracle.live());
  EXPECT_EQ(oracle.live(), slack_ms ? 0 : connections());
  for (std::size_t i = 0; slack_ms && i < test::kPhases.size(); ++i)
    EXPECT_GT(oracle.removals_in[i], 0U)
        << "no connection was removed in the phase " << test::kPhases[i].name;
  const auto ok = (*line)->check_invariants();
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
}

// The slacks are those of docs/ageing.md.
INSTANTIATE_TEST_SUITE_P(
    Schemes, LifetimeTest,
    testing::Values(Scheme{"wheel", "wheel", 10, 10, true, 16},
                    // With an interval of 1 ms the wheel uses its second level.
                    Scheme{"wheel_of_1_ms", "wheel", 1, 1, true, 16},
                    Scheme{"scan", "scan", 10, 1'010, true, 16},
                    Scheme{"lazy", "lazy", 10, 60'010, false, 4},
                    Scheme{"lazy_where_room_is_short", "lazy", 10, 60'010, false, 24},
                    Scheme{"none", "none", 10, std::nullopt, true, 1}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace millrace
