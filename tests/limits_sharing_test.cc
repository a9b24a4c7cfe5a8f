// Tests limits with several workers that raise and lower counts at the same time, under every
// sharing scheme that has a table. If workers share tables, a worker may end a TCP or UDP
// connection that another worker has proved. In the end no connection is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "parse/test_packets.h"
#include "worker/workers.h"

namespace millrace {
namespace {

using test::operator+;
using test::be;
using test::bytes;
using test::Bytes;
using test::ethernet;
using test::zeros;

constexpr unsigned kWorkers = 4;
constexpr unsigned kClients = 240;  // a third of them belong to one source, the rest to another
constexpr std::uint32_t kMost = 20;

/// A TCP packet of either side. `kSaid` has the packets of a conversation in their order.
struct Said {
  bool is_reply;
  std::uint8_t flags;
  unsigned sequence;
};
constexpr std::array<Said, 8> kSaid{{{false, 2, 100},
                                     {true, 18, 500},
                                     {false, 16, 101},
                                     {true, 16, 501},
                                     {false, 17, 101},
                                     {true, 17, 501},
                                     {false, 4, 101},
                                     {true, 4, 501}}};

/// Returns the packet `said` of client `n`. Half of each worker's clients use UDP instead of TCP.
Bytes packet(unsigned n, const Said& said) {
  const bool is_udp = n / kWorkers % 2 == 1;
  const Bytes client = bytes({10, n % 3 == 0 ? 1U : 2U, n >> 8, n & 0xff});
  const Bytes server = said.is_reply ? bytes({10, 0, 0, 1}) : bytes({203, 0, 113, 10});
  const Bytes ports = said.is_reply ? be(8080) + be(1024 + n) : be(1024 + n) + be(80);
  const Bytes rest = is_udp ? be(8) + be(0)
                            : be(0) + be(said.sequence) + be(0) + be(said.is_reply ? 101 : 501) +
                                  bytes({0x50, said.flags}) + be(65535) + zeros(4);
  return ethernet(0x0800) + bytes({0x45, 0}) + be(is_udp ? 28 : 40) + be(0) + be(0x4000) +
         bytes({64, is_udp ? 17U : 6U, 0, 0}) +
         (said.is_reply ? server + client : client + server) + ports + rest;
}

/// The time of all workers, which each burst advances by a millisecond.
struct Clock {
  std::atomic<std::uint32_t> now = 0;
  std::atomic<unsigned> giving = kWorkers;  ///< ports that still receive packets
};

/// A port that receives random packets: of all clients if the workers share tables, otherwise of
/// its worker's clients.
class RandomPort final : public Port {
 public:
  RandomPort(unsigned worker, bool is_shared, const Workers& workers, Clock& clock)
      : worker_(worker),
        is_shared_(is_shared),
        workers_(&workers),
        clock_(&clock),
        random_(test::seed() * 100 + worker) {
    for (unsigned n = 0; n < kClients; ++n) {
      for (const Said& said : kSaid) packets_.push_back(packet(n, said));
    }
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    burst.size = 0;
    burst.now = Tick{++clock_->now};
    if (bursts_++ > kBursts) {
      if (!std::exchange(has_given_, true)) --clock_->giving;
      // Empty bursts follow as long as other workers may still prove this worker's connections,
      // packets in flight may open connections, or connections are live.
      const bool is_needed = clock_->giving > 0 || idle_ < 2 * kBurstsInFlight ||
                             workers_->line(worker_).live().v4 > 0;
      return is_needed && idle_++ < 2'000'000;
    }
    look();
    auto& slots = slots_[bursts_ % kBurstsInFlight];
    const auto size = static_cast<unsigned>(1 + random_() % 16);
    for (; burst.size < size; ++burst.size) {
      auto n = static_cast<unsigned>(random_() % kClients);
      if (!is_shared_) n = n / kWorkers * kWorkers + worker_;
      const Bytes& bytes = packets_[n * kSaid.size() + random_() % kSaid.size()];
      std::byte* to = slots[burst.size].data() + 128;
      std::ranges::copy(bytes, to);
      burst.data[burst.size] = to;
      burst.length[burst.size] = static_cast<std::uint16_t>(bytes.size());
      burst.wire_length[burst.size] = burst.length[burst.size];
    }
    return true;
  }
  void send(const Burst&, std::uint64_t) override {}

  std::uint64_t most_seen = 0;  ///< the most connections of one source

 private:
  static constexpr unsigned kBursts = 2000;

  void look() {
    for (const std::uint8_t net : std::array<std::uint8_t, 2>{1, 2}) {
      KeyV4 key;
      key.source.bytes = {10, net, 0, 0};
      most_seen =
          std::max(most_seen, workers_->sources()->count(workers_->sources()->source_of(key)));
    }
  }

  unsigned worker_;
  bool is_shared_;
  const Workers* workers_;
  Clock* clock_;
  std::mt19937_64 random_;
  std::vector<Bytes> packets_;
  std::array<std::array<std::array<std::byte, 256>, 16>, kBurstsInFlight> slots_;
  unsigned bursts_ = 0;
  unsigned idle_ = 0;
  bool has_given_ = false;
};

std::vector<std::string> schemes_with_tables() {
  std::vector<std::string> names = SharingSchemes::names();
  std::erase_if(names, [](const auto& name) { return tables_for(name).empty(); });
  return names;
}

class LimitsSharingTest : public testing::TestWithParam<std::string> {
 protected:
  /// Returns the largest count of a source that a worker saw.
  std::uint64_t run(const SourceLimit& of_source, std::uint32_t of_service, Verdict limit);
};
INSTANTIATE_TEST_SUITE_P(AllSchemes, LimitsSharingTest, testing::ValuesIn(schemes_with_tables()),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

std::uint64_t LimitsSharingTest::run(const SourceLimit& of_source, std::uint32_t of_service,
                                     Verdict limit) {
  SCOPED_TRACE(test::repeat());
  BalanceConfig balance;
  balance.services = {};
  ServiceSpec<AddressV4> spec{.address = {{203, 0, 113, 10}},
                              .port = 80,
                              .max_connections = of_service,
                              .backends = {{.address = {{10, 0, 0, 1}}, .port = 8080}}};
  balance.services.v4.push_back(spec);
  balance.maglev_table_size = 251;
  auto made = make_workers(kWorkers,
                           {.table = tables_for(GetParam()).front(),
                            .sharing = GetParam(),
                            .capacity = 4 * kClients,
                            .capacity_v6 = 1,
                            .timeouts = Timeouts::all(60),
                            .interval_ms = 1,
                            .pages = Pages::small,
                            .secret = Secret::from_seed(test::seed()),
                            .half_open_percent = 20,
                            .source_limit = of_source},
                           balance);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  Workers& workers = *made;
  Clock clock;
  std::vector<std::unique_ptr<RandomPort>> ports;
  std::vector<Port*> pointers;
  for (unsigned n = 0; n < kWorkers; ++n) {
    ports.push_back(std::make_unique<RandomPort>(n, shares_tables(GetParam()), workers, clock));
    pointers.push_back(ports.back().get());
  }
  EXPECT_TRUE(workers.run(pointers).has_value());
  const WorkerCounters counters = workers.counters();
  EXPECT_GT(counters.verdict[static_cast<std::size_t>(limit)].value(), 0U);
  EXPECT_GT(counters.ended(), kClients / 4);
  EXPECT_EQ(workers.report_v4().live, 0U);
  EXPECT_EQ(workers.sources()->total(), 0U);
  EXPECT_EQ(services_of(workers).front().established, 0U);
  for (unsigned n = 0; n < kWorkers; ++n) {
    const auto ok = workers.line(n).check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }
  std::uint64_t sum = 0;
  for (std::size_t v = 0; v < kVerdicts; ++v) {
    if (is_drop(static_cast<Verdict>(v))) sum += counters.verdict[v].value();
  }
  EXPECT_EQ(counters.in.value(), counters.out.value() + sum);
  std::uint64_t most = 0;
  for (const auto& port : ports) most = std::max(most, port->most_seen);
  return most;
}

TEST_P(LimitsSharingTest, ASourceGetsBackWhatItsConnectionsTook) {
  const std::uint64_t most = run({.most = kMost, .prefix_v4 = 16}, 0, Verdict::source_limit);
  EXPECT_GE(most, kMost);
  EXPECT_LE(most, kMost + kWorkers - 1);
}

TEST_P(LimitsSharingTest, SoDoesAService) {
  const std::uint64_t most = run({.most = 10'000, .prefix_v4 = 8}, kMost, Verdict::service_limit);
  EXPECT_GE(most, kMost);
  // Each worker may count one more connection for the source until the service refuses it.
  EXPECT_LE(most, kMost + kWorkers - 1 + kWorkers);
}

}  // namespace
}  // namespace millrace
