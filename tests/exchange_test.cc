// Shards that move between running workers: every packet of every conversation is served once, in
// order, by its connection's backend, whoever received it.
//
// Each direction of a conversation comes by the queue of one worker, its packets numbered; the
// backend that a conversation meets first must stay its own. So a connection that were opened
// twice, lost, or served out of order shows.
#include "worker/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "balance_workers.h"
#include "core/test_sanitizers.h"
#include "core/test_seed.h"
#include "endpoint.h"
#include "worker/workers.h"

namespace millrace {
namespace {

using test::Bytes;
using test::Endpoint;

constexpr unsigned kShards = 128;
constexpr unsigned kConversations = 600;
constexpr unsigned kPackets = 200;  ///< that each port has at most, wherever they are
constexpr std::uint64_t kMoves = kSanitized ? 100 : 200;
constexpr Endpoint kService{{203, 0, 113, 10}, 80};

Endpoint client(unsigned n) {
  return {{10, 1, static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n)},
          static_cast<std::uint16_t>(1024 + n)};
}

/// What conversations have had, by all workers.
struct Conversation {
  std::atomic<std::uint64_t> backend{0};               // 0: none yet
  std::array<std::atomic<std::uint32_t>, 2> served{};  // the latest packet, to the backend and back
};

struct Traffic {
  std::vector<Conversation> all = std::vector<Conversation>(kConversations);
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::uint64_t> wrong{0};  // not in order, or another backend's
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<bool> is_ending{false};
};

/// A packet in memory of the port that has made it.
struct Packet {
  std::atomic<bool> is_free{true};
  unsigned conversation = 0;
  unsigned direction = 0;
  std::uint32_t number = 0;
  unsigned length = 0;
  std::array<std::byte, 512> bytes{};
};

class MemoryPort final : public Port, private WorkersExchange::Packets {
 public:
  MemoryPort(Exchange& exchange, unsigned worker, Traffic& traffic, std::uint64_t seed)
      : traffic_(&traffic),
        worker_(worker),
        random_(seed),
        packets_(kPackets),
        exchange_(exchange, worker, *this) {}

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    burst.now = Tick{static_cast<std::uint32_t>(
        std::chrono::steady_clock::now().time_since_epoch() / std::chrono::milliseconds(1))};
    exchange_.receive(burst);
    const bool is_ending = traffic_->is_ending.load();
    if (!is_ending) {
      for (auto left = random_() % 16; left > 0 && burst.size < Burst::kMax; --left) make(burst);
    }
    empty_ = burst.size == 0 ? empty_ + 1 : 0;
    if (empty_ > 3) std::this_thread::yield();
    return !is_ending || traffic_->served + traffic_->dropped < traffic_->sent ||
           !exchange_.is_at_rest();
  }
  void filed(Burst& burst, const Steering& steering) override {
    exchange_.hand_over(burst, steering);
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    for (unsigned i = 0; i < burst.size; ++i) {
      Packet& packet = packet_of(burst.handle[i]);
      if ((forward >> i & 1) != 0) {
        check(packet, burst.data[i]);
      } else {
        ++traffic_->dropped;
      }
      packet.is_free.store(true, std::memory_order_release);
    }
  }

  WorkersExchange& exchange() { return exchange_; }

 private:
  static constexpr unsigned kHeadroom = 128;
  static Packet& packet_of(Handle handle) { return *std::bit_cast<Packet*>(handle); }

  /// One more, of a conversation whose packets in that direction come here.
  void make(Burst& burst) {
    const auto n = static_cast<unsigned>(random_() % kConversations);
    Conversation& conversation = traffic_->all[n];
    const std::uint64_t backend = conversation.backend.load();
    const unsigned direction = random_() % 3 == 0 && backend != 0 ? 1 : 0;
    if ((n + direction) % exchange_.workers() != worker_) return;
    Packet& packet = packets_[next_ % kPackets];
    if (!packet.is_free.load(std::memory_order_acquire)) return;
    ++next_;
    packet.is_free.store(false, std::memory_order_relaxed);
    packet.conversation = n;
    packet.direction = direction;
    packet.number = ++numbers_[2 * n + direction];
    Endpoint from = client(n);
    Endpoint to = kService;
    if (direction == 1) {
      to = from;
      std::memcpy(from.address.data(), &backend, 4);
      from.port = 8080;
    }
    const Bytes bytes = test::packet(from, to, test::kAck);
    packet.length = static_cast<unsigned>(bytes.size());
    std::ranges::copy(bytes, packet.bytes.begin() + kHeadroom);
    place(burst, burst.size++, std::bit_cast<Handle>(&packet));
    ++traffic_->sent;
  }

  void check(const Packet& packet, const std::byte* data) {
    Conversation& conversation = traffic_->all[packet.conversation];
    const Endpoint source = test::source_of(data);
    const Endpoint destination = test::destination_of(data);
    bool is_right = true;
    if (packet.direction == 0) {
      std::uint64_t backend = 0;
      std::memcpy(&backend, destination.address.data(), 4);
      std::uint64_t none = 0;
      is_right = conversation.backend.compare_exchange_strong(none, backend) || none == backend;
      is_right = is_right && source == client(packet.conversation);
    } else {
      is_right = source == kService && destination == client(packet.conversation);
    }
    const std::uint32_t before = conversation.served.at(packet.direction).exchange(packet.number);
    if (!is_right || before + 1 != packet.number) ++traffic_->wrong;
    ++traffic_->served;
  }

  void place(Burst& burst, unsigned at, Handle handle) override {
    Packet& packet = packet_of(handle);
    burst.data[at] = packet.bytes.data() + kHeadroom;
    burst.length[at] = static_cast<std::uint16_t>(packet.length);
    burst.wire_length[at] = packet.length;
    burst.handle[at] = handle;
  }
  void drop(Handle handle) override {
    ++traffic_->dropped;
    packet_of(handle).is_free.store(true, std::memory_order_release);
  }
  void passed_on(Handle) override {}
  void hear(const Burst&, unsigned, Handle) override {}

  Traffic* traffic_;
  unsigned worker_;
  std::mt19937_64 random_;
  std::vector<Packet> packets_;
  std::size_t next_ = 0;
  std::vector<std::uint32_t> numbers_ = std::vector<std::uint32_t>(2 * kConversations);
  unsigned empty_ = 0;
  WorkersExchange exchange_;
};

class ExchangeTest : public testing::TestWithParam<std::string> {
 protected:
  void run(unsigned count) {
    const LineConfig line{.table = GetParam(),
                          .capacity = 4 * kConversations,
                          .capacity_v6 = 1'000,
                          .timeouts = Timeouts::all(1'000'000'000),
                          .pages = Pages::small,
                          .secret = Secret::from_seed(test::seed()),
                          .source_limit = {.most = 1'000'000},
                          .shards_that_move = kShards};
    BalanceConfig config;
    config.services = {};
    ServiceSpec<AddressV4> spec{
        .address = {kService.address}, .port = kService.port, .protocol = 6, .backends = {}};
    spec.scheduler = "round-robin";
    for (std::uint8_t last = 1; last <= 7; ++last)
      spec.backends.push_back({{{10, 0, 0, last}}, 8080});
    config.services.v4.push_back(spec);
    auto workers = make_workers(count, line, config, kShards);
    ASSERT_TRUE(workers.has_value()) << workers.error().message;

    auto owners =
        std::make_shared<Owners>(spread_named("keyed")->create(Secret::from_seed(test::seed() + 1)),
                                 Indirection(kShards, count), count);
    const auto exchange = Exchange::create(count, owners);
    ASSERT_TRUE(exchange.has_value());
    Traffic traffic;
    std::vector<std::unique_ptr<MemoryPort>> ports;
    std::vector<Line*> lines;
    std::vector<Port*> pointers;
    for (unsigned n = 0; n < count; ++n) {
      ports.push_back(
          std::make_unique<MemoryPort>(**exchange, n, traffic, test::seed() + 100 * count + n));
      lines.push_back(&workers->line(n));
      pointers.push_back(ports.back().get());
    }
    for (const auto& port : ports) port->exchange().set_lines(lines);
    std::jthread mover([&] { move(owners->moves(), traffic); });
    const auto ran = workers->run(pointers);
    mover.join();
    ASSERT_TRUE(ran.has_value());
    EXPECT_EQ(traffic.wrong, 0U);
    EXPECT_EQ(traffic.dropped, 0U);
    EXPECT_EQ(traffic.served, traffic.sent);
    EXPECT_GT(traffic.served, kMoves);
    check_counts(*workers);
  }

  void move(ShardMoves& moves, Traffic& traffic) {
    std::mt19937_64 random(test::seed());
    for (std::uint64_t n = 0; n < kMoves && traffic.wrong == 0; ++n) {
      const auto shard = static_cast<unsigned>(random() % kShards);
      const auto to = static_cast<unsigned>(random() % moves.workers());
      if (moves.worker_of(shard) == to) continue;
      moves.begin(shard, to);
      while (moves.is_under_way()) std::this_thread::yield();
    }
    traffic.is_ending = true;
  }

  static void check_counts(Workers& workers) {
    for (unsigned n = 0; n < workers.count(); ++n) {
      const auto whole = workers.line(n).check_invariants();
      EXPECT_TRUE(whole.has_value()) << whole.error().message;
    }
    EXPECT_TRUE(workers.function().check_invariants().has_value());
    const WorkerCounters counters = workers.counters();
    EXPECT_EQ(counters.ended(), 0U);
    EXPECT_EQ(workers.report_v4().live, counters.opened.value());
    std::uint64_t live = 0;
    std::uint64_t proved = 0;
    for (const auto& service : services_of(workers)) {
      proved += service.established;
      for (const auto& backend : service.backends) live += backend.live;
    }
    EXPECT_EQ(live, counters.opened.value());
    EXPECT_EQ(workers.sources()->total(), proved);
  }
};

TEST_P(ExchangeTest, ConversationsGoOnWhileShardsMove) {
  // Several are made at once, under a lock within DPDK that the sanitizer does not see.
  if (kThreadSanitized && GetParam() == "cuckoo") GTEST_SKIP() << "it takes DPDK's locks for races";
  SCOPED_TRACE(test::repeat());
  for (const unsigned count : {2U, 3U}) {
    SCOPED_TRACE(std::to_string(count) + " workers");
    run(count);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ExchangeTest, testing::ValuesIn(tables_for("sharded")),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace(name, '+', 'p');
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace millrace
