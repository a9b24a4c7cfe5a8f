// Tests shards that move between running workers: every packet of a conversation, and every ICMP
// error about it, is served once, in order, with its connection's backend, whichever worker
// received it.
//
// A conversation has four kinds of packets, of which two are ICMP errors. Packets of one kind are
// numbered, and arrive at the queue of one worker. Conversations pause until their connections have
// ended by timeout, while shards go on moving, and begin again: each time, a conversation opens one
// connection, which must keep its backend. The workers' clocks differ by hours and days.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/test_sanitizers.h"
#include "core/test_seed.h"
#include "exchange_support.h"

namespace millrace::test {
namespace {

constexpr unsigned kConversations = 240;
constexpr unsigned kBusyShards = 8;
/// Packets in each worker's pool: so many may be in bursts, in rings or held at one time.
constexpr unsigned kPackets = 64;
constexpr unsigned kPhases = 8;

// Simulated time passes with each move. A packet is served at most a dozen moves after it was made:
// each move takes at least one burst of each worker, and no more than `kPackets` packets of each
// worker can wait.
constexpr std::uint32_t kMoveMs = 500;
constexpr std::uint32_t kDelayMs = 12 * kMoveMs;
constexpr std::uint32_t kTalkMs = 8 * kMoveMs;
constexpr std::uint32_t kIdleMs = 24 * kMoveMs;
static_assert(kTalkMs + kDelayMs < kIdleMs);
/// The pause between a conversation's phases. It includes 2 s more than delay and timeout, as
/// `scan` may be a second late.
constexpr std::uint32_t kPauseMs = kDelayMs + kIdleMs + 4 * kMoveMs;
constexpr std::uint32_t kPeriodMs = kTalkMs + kPauseMs;

/// Returns the time of a worker's clock.
Tick clock_of(unsigned worker, std::uint32_t now_ms) {
  constexpr std::array<std::uint32_t, 3> kBegin{10'000'000, INT32_MAX - 20'000, 0};
  return Tick{kBegin[worker] + now_ms};
}

enum Kind : std::uint8_t { to_service, to_client, error_to_client, error_to_backend };

struct Conversation {
  End client;
  std::uint8_t protocol = 0;
  std::uint32_t begins_ms = 0;
  std::array<std::atomic<std::uint8_t>, kPhases> backend{};  // 0: none yet
  std::array<std::atomic<std::uint32_t>, 4> served{};        // the latest packet's number, by kind
};

/// The state that all workers' ports share.
struct Traffic {
  std::vector<Conversation> all = std::vector<Conversation>(kConversations);
  std::atomic<std::uint32_t> now_ms{0};
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::uint64_t> errors{0};  // ICMP errors that were served
  std::atomic<std::uint64_t> wrong{0};   // packets out of order, or with wrong addresses
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<bool> is_ending{false};
  std::atomic<unsigned> silent{0};  // ports that make no more packets
  bool stops_at_once = false;       // the run ends while packets are in rings or held

  std::uint64_t begun() const {
    std::uint64_t sum = 0;
    for (const Conversation& one : all) {
      for (const auto& backend : one.backend) sum += backend.load() != 0 ? 1U : 0U;
    }
    return sum;
  }
};

class TalkingPort final : public MemoryPort {
 public:
  TalkingPort(Bed& bed, unsigned worker, Traffic& traffic, std::uint64_t seed)
      : MemoryPort(*bed.exchange, worker, bed.pool(kPackets)), traffic_(&traffic), random_(seed) {}

 private:
  Tick now() const override { return clock_of(worker(), traffic_->now_ms.load()); }

  bool fill(Burst& burst) override {
    const bool is_ending = traffic_->is_ending.load();
    if (!is_ending) {
      for (auto left = random_() % 16; left > 0 && burst.size < Burst::kMax; --left) make(burst);
    }
    empty_ = burst.size == 0 ? empty_ + 1 : 0;
    if (empty_ > 3) std::this_thread::yield();
    if (is_ending && traffic_->stops_at_once) return false;
    if (is_ending && !std::exchange(is_silent_, true)) ++traffic_->silent;
    return traffic_->silent < exchange().workers() ||
           traffic_->served + traffic_->dropped < traffic_->sent || !exchange().is_at_rest();
  }
  /// Adds a packet that belongs to no connection. While packets wait, a worker packs few
  /// connections between two bursts: so moves take longer.
  void fill_last(Burst& burst) override {
    if (traffic_->is_ending || random_() % 16 == 0) return;
    Packet* const packet = pool().take();
    if (packet == nullptr) return;
    packet->number = 0;  // belongs to no conversation
    add(burst, *packet, ethernet(0x88cc) + zeros(46));
  }

  /// Adds a packet of a random kind of a random conversation, if such packets arrive at this worker
  /// and the conversation does not pause.
  void make(Burst& burst) {
    const auto n = static_cast<unsigned>(random_() % kConversations);
    Conversation& one = traffic_->all[n];
    const std::uint32_t at_ms = traffic_->now_ms + one.begins_ms;
    const std::uint32_t phase = at_ms / kPeriodMs;
    if (at_ms % kPeriodMs >= kTalkMs || phase >= kPhases) return;
    const std::uint8_t backend = one.backend[phase].load();
    const unsigned kind = backend != 0 ? random_() % 8 % 5 % 4 : 0;
    if ((n + kind) % exchange().workers() != worker()) return;
    Packet* const packet = pool().take();
    if (packet == nullptr) return;
    packet->tag = 4 * n + kind;
    packet->phase = phase;
    packet->number = ++numbers_[packet->tag];
    add(burst, *packet, bytes_of(one, kind, backend_at(one.client.is_v6, backend)));
    ++traffic_->sent;
  }

  static Bytes bytes_of(const Conversation& one, unsigned kind, const End& backend) {
    const End service = service_at(one.client.is_v6);
    switch (kind) {
      case to_service:
        return packet_between(one.client, service, one.protocol);
      case to_client:
        return packet_between(backend, one.client, one.protocol, 1);
      case error_to_client:
        return error_about(packet_between(one.client, backend, one.protocol));
      default:
        return error_about(packet_between(service, one.client, one.protocol));
    }
  }

  void served(Packet& packet, const Burst& burst, unsigned at, bool is_forwarded) override {
    if (packet.number == 0) return;
    if (!is_forwarded) {
      ++traffic_->dropped;
      return;
    }
    const unsigned kind = packet.tag % 4;
    Conversation& one = traffic_->all[packet.tag / 4];
    const std::uint32_t before = one.served.at(kind).exchange(packet.number);
    const bool is_right = is_as_it_should_be(one, kind, one.backend[packet.phase], burst.data[at]);
    if (!is_right || before + 1 != packet.number) ++traffic_->wrong;
    if (kind >= error_to_client) ++traffic_->errors;
    ++traffic_->served;
  }

  /// Returns true if the packet left with the addresses and ports that its receiver expects.
  static bool is_as_it_should_be(const Conversation& one, unsigned kind,
                                 std::atomic<std::uint8_t>& backend, const std::byte* data) {
    const bool is_v6 = one.client.is_v6;
    const End service = service_at(is_v6);
    const End to = destination_of(data);
    switch (kind) {
      case to_service: {
        const std::uint8_t last = to.address[is_v6 ? 15 : 3];
        std::uint8_t none = 0;
        const bool is_its = backend.compare_exchange_strong(none, last) || none == last;
        return is_its && to == backend_at(is_v6, last) && source_of(data) == one.client;
      }
      case to_client:
        return source_of(data) == service && to == one.client;
      case error_to_client:
        return to.address == one.client.address && quoted_source_of(data) == one.client &&
               quoted_destination_of(data) == service;
      default: {
        const End its = backend_at(is_v6, backend.load());
        return to.address == its.address && quoted_source_of(data) == its &&
               quoted_destination_of(data) == one.client;
      }
    }
  }

  Traffic* traffic_;
  std::mt19937_64 random_;
  std::vector<std::uint32_t> numbers_ = std::vector<std::uint32_t>(4 * kConversations);
  unsigned empty_ = 0;
  bool is_silent_ = false;
};

/// Workers that serve conversations of both families and protocols, all in a few shards.
struct Talk {
  Talk(const std::string& table, unsigned count)
      : bed(count, Bed::line(table, ageing_for(table), 4 * kConversations, kIdleMs),
            Bed::balance()),
        random(seed() + count) {
    for (unsigned n = 0, next = 0; n < kConversations; ++n) {
      Conversation& one = traffic.all[n];
      one.protocol = n / 2 % 2 == 0 ? kProtocolTcp : kProtocolUdp;
      one.begins_ms = static_cast<std::uint32_t>(random() % kPeriodMs);
      do one.client = client_at(n % 2 == 1, next++);
      while (bed.shard_of(one.client, one.protocol) >= kBusyShards);
    }
    for (unsigned n = 0; n < count; ++n)
      bed.add(std::make_unique<TalkingPort>(bed, n, traffic, random()));
    bed.connect();
  }

  void begin_a_move() {
    traffic.now_ms += kMoveMs;
    ShardMoves& moves = bed.owners->moves();
    const auto shard = static_cast<unsigned>(random() % kBusyShards);
    const auto by = static_cast<unsigned>(1 + random() % (moves.workers() - 1));
    moves.begin(shard, (moves.worker_of(shard) + by) % moves.workers());
  }
  void step_one() {
    const auto n = static_cast<unsigned>(random() % bed.workers.count());
    bed.step(n, static_cast<unsigned>(3 + random() % 6));
  }
  void run_on_threads() {
    std::vector<Port*> ports;
    for (const auto& port : bed.ports) {
      port->run_until_told();
      ports.push_back(port.get());
    }
    EXPECT_TRUE(bed.workers.run(ports).has_value());
  }

  /// Expects that every packet that the ports made was served, and that all connections end after
  /// their timeouts.
  void check() {
    EXPECT_EQ(traffic.wrong, 0U);
    EXPECT_EQ(traffic.dropped, 0U);
    EXPECT_EQ(bed.dropped(), 0U);
    EXPECT_EQ(traffic.served, traffic.sent);
    for (const auto& pool : bed.pools) EXPECT_EQ(pool->on_their_way(), 0U);
    EXPECT_EQ(bed.workers.counters().opened.value(), traffic.begun());
    bed.check();
    traffic.now_ms += 200'000;  // more than any ageing scheme needs
    for (unsigned n = 0; n < bed.workers.count(); ++n) bed.step(n);
    bed.check();
    EXPECT_EQ(bed.ended(Ending::timed_out), traffic.begun());
    EXPECT_EQ(bed.workers.report_v4().live + bed.workers.report_v6().live, 0U);
    EXPECT_EQ(bed.workers.sources()->total(), 0U);
  }

  Traffic traffic;
  Bed bed;
  std::mt19937_64 random;
};

class ExchangeTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { skip_what_seems_a_race(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Tables, ExchangeTest, testing::ValuesIn(tables_for("sharded")),
                         name_of_table);

TEST_P(ExchangeTest, ConversationsGoOnWhileShardsMove) {
  constexpr unsigned kMoves = kSanitized ? 70 : 120;
  SCOPED_TRACE(repeat());
  for (const unsigned count : {2U, 3U}) {
    if (kSanitized && count == 2) continue;  // to save time: 3 workers test what 2 test
    SCOPED_TRACE(std::to_string(count) + " workers");
    Talk talk(GetParam(), count);
    for (unsigned moves = 0; moves < kMoves && talk.traffic.wrong == 0; ++moves) {
      talk.begin_a_move();
      while (talk.bed.owners->moves().is_under_way()) talk.step_one();
    }
    talk.traffic.is_ending = true;
    for (unsigned left = 10'000;
         left > 0 && (talk.traffic.served < talk.traffic.sent || !talk.bed.is_at_rest()); --left)
      talk.step_one();
    EXPECT_GT(talk.traffic.errors, kMoves);
    EXPECT_GT(talk.bed.ended(Ending::timed_out), 0U);
    talk.check();
  }
}

TEST_P(ExchangeTest, SoTheyDoOnThreads) {
  SCOPED_TRACE(repeat());
  const unsigned wanted = GetParam() == "race" ? 60 : 6;
  Talk talk(GetParam(), 3);
  std::jthread mover([&] {
    for (unsigned moves = 0; moves < wanted && talk.traffic.wrong == 0; ++moves) {
      talk.begin_a_move();
      while (talk.bed.owners->moves().is_under_way()) std::this_thread::yield();
    }
    talk.traffic.is_ending = true;
  });
  talk.run_on_threads();
  mover.join();
  talk.check();
}

/// Expects that destroying the ports returns all packets, in rings or held, to the pools that they
/// came from.
void expect_all_given_back(Talk& talk) {
  EXPECT_EQ(talk.traffic.wrong, 0U);
  talk.bed.ports.clear();
  for (const auto& pool : talk.bed.pools) {
    EXPECT_EQ(pool->on_their_way(), 0U);
    EXPECT_EQ(pool->misplaced(), 0U);
  }
}

TEST_P(ExchangeTest, PacketsComeBackWhereARunEndsDuringAMove) {
  constexpr unsigned kRuns = kSanitized ? 3 : 6;
  SCOPED_TRACE(repeat());
  std::mt19937_64 random(seed());
  for (unsigned run = 0; run < kRuns; ++run) {
    Talk talk(GetParam(), 3);
    talk.traffic.stops_at_once = true;
    for (unsigned left = 100; left > 0; --left) talk.step_one();
    talk.begin_a_move();
    for (auto left = random() % 8; left > 0; --left) talk.step_one();
    expect_all_given_back(talk);
  }
}

TEST_P(ExchangeTest, AndOnThreads) {
  SCOPED_TRACE(repeat());
  Talk talk(GetParam(), 3);
  talk.traffic.stops_at_once = true;
  std::jthread mover([&] {
    while (talk.traffic.served < 500) std::this_thread::yield();
    talk.begin_a_move();
    const std::uint64_t served = talk.traffic.served;
    while (talk.traffic.served == served) std::this_thread::yield();
    talk.traffic.is_ending = true;
  });
  talk.run_on_threads();
  mover.join();
  expect_all_given_back(talk);
}

}  // namespace
}  // namespace millrace::test
