// Tests moves of a shard step by step, most of them while connections expire, or while tables,
// rings or the room for held packets are full. One thread runs all workers, a few bursts at a time.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "exchange_support.h"

namespace millrace::test {
namespace {

constexpr std::uint32_t kTimeoutMs = 10'000;
/// Time after which any ageing scheme has found the connections that have expired.
constexpr std::uint32_t kLateMs = 70'000;

/// A port that receives the packets that the test gives it, and notes what becomes of each.
class ScriptPort final : public MemoryPort {
 public:
  struct Served {
    unsigned tag = 0;
    Verdict verdict{};
    bool is_forwarded = false;
    Bytes bytes;
  };
  ScriptPort(Bed& bed, unsigned worker, unsigned packets, const std::uint32_t& now_ms,
             std::uint32_t ahead_ms)
      : MemoryPort(*bed.exchange, worker, bed.pool(packets)),
        now_ms_(&now_ms),
        ahead_ms_(ahead_ms) {}

  void give(const Bytes& bytes, unsigned tag = 0) { to_come_.push_back({bytes, tag}); }
  bool has_given_all() const { return to_come_.empty(); }
  std::vector<Served> done;

 private:
  Tick now() const override { return Tick{*now_ms_ + ahead_ms_}; }
  bool fill(Burst& burst) override {
    while (!to_come_.empty() && burst.size < Burst::kMax) {
      Packet* const packet = pool().take();
      if (packet == nullptr) break;
      packet->tag = to_come_.front().second;
      add(burst, *packet, to_come_.front().first);
      to_come_.pop_front();
    }
    return true;
  }
  void served(Packet& packet, const Burst& burst, unsigned at, bool is_forwarded) override {
    done.push_back({packet.tag, burst.verdict[at], is_forwarded,
                    Bytes(burst.data[at], burst.data[at] + burst.length[at])});
  }

  const std::uint32_t* now_ms_;
  std::uint32_t ahead_ms_;
  std::deque<std::pair<Bytes, unsigned>> to_come_;
};

/// A client of one connection, and the connection's backend once it is known.
struct Client {
  End end;
  std::uint8_t protocol = kProtocolUdp;
  End backend;

  AnyKey key() const {
    const End service = service_at(end.is_v6);
    if (end.is_v6) return Bed::key<KeyV6>(end, service, protocol);
    return Bed::key<KeyV4>(end, service, protocol);
  }
  Bytes asks() const { return packet_between(end, service_at(end.is_v6), protocol); }
  Bytes is_answered() const { return packet_between(backend, end, protocol, 1); }
};

struct Combination {
  std::string table;
  std::string ageing;
  bool is_v6 = false;
};
void PrintTo(const Combination& of, std::ostream* to) { *to << of.table << ' ' << of.ageing; }

/// Tests with two workers: at first worker 0 has the even shards, and worker 1 the odd ones.
class ShardStepsTest : public testing::TestWithParam<Combination> {
 protected:
  void SetUp() override { skip_what_seems_a_race(GetParam().table); }
  struct Steps : Bed {
    Steps(const LineConfig& line, const BalanceConfig& balance, unsigned packets = 512,
          std::uint32_t ahead_ms = 0)
        : Bed(2, line, balance) {
      for (unsigned n = 0; n < 2; ++n)
        port.push_back(&add(std::make_unique<ScriptPort>(*this, n, packets, now_ms, n * ahead_ms)));
      connect();
    }
    /// Returns `count` new clients, whose connections will belong to `shard`.
    std::vector<Client> clients(unsigned shard, unsigned count, bool is_v6,
                                std::uint8_t protocol = kProtocolUdp) {
      std::vector<Client> all;
      while (all.size() < count) {
        const Client one{client_at(is_v6, next_client++), protocol, {}};
        if (shard_of(one.end, protocol) == shard) all.push_back(one);
      }
      return all;
    }
    /// Serves a packet of each client, received from `worker`'s queue. Returns results by client.
    std::vector<ScriptPort::Served> ask(unsigned worker, const std::vector<Client>& all) {
      return results_of(worker, all, [](const Client& one) { return one.asks(); });
    }
    std::vector<ScriptPort::Served> answer(unsigned worker, const std::vector<Client>& all) {
      return results_of(worker, all, [](const Client& one) { return one.is_answered(); });
    }
    /// Opens the connections of `all` at `worker`; if `is_answered`, replies prove them.
    void open(unsigned worker, std::vector<Client>& all, bool is_answered = true) {
      const auto asked = ask(worker, all);
      for (std::size_t n = 0; n < all.size(); ++n) {
        EXPECT_EQ(asked[n].verdict, Verdict::tracked);
        all[n].backend = destination_of(asked[n].bytes.data());
      }
      if (!is_answered) return;
      for (const auto& one : answer(worker, all)) EXPECT_EQ(one.verdict, Verdict::tracked);
    }
    /// Advances the time, and serves empty bursts, from which the workers learn the new time.
    void pass(std::uint32_t ms) {
      now_ms += ms;
      for (unsigned n = 0; n < 2; ++n) step(n);
    }
    void begin(unsigned shard, unsigned to) { owners->moves().begin(shard, to); }
    /// Serves bursts on all workers until no packet and no move is under way.
    void reclaim() {
      for (unsigned left = 1000; left > 0 && (!is_at_rest() || !has_given_all()); --left) {
        for (unsigned n = 0; n < 2; ++n) step(n, 6);
      }
      EXPECT_TRUE(is_at_rest() && has_given_all());
    }
    void move(unsigned shard, unsigned to) {
      begin(shard, to);
      reclaim();
    }
    bool has_given_all() const { return port[0]->has_given_all() && port[1]->has_given_all(); }
    std::optional<ListedConnection> find(unsigned worker, const Client& client) const {
      return workers.line(worker).find(client.key());
    }
    std::size_t live(unsigned worker) const {
      const auto live = workers.line(worker).live();
      return live.v4 + live.v6;
    }
    void check_packets() const {
      for (const auto& of_port : pools) EXPECT_EQ(of_port->on_their_way(), 0U);
      check();
    }

    std::uint32_t now_ms = 100'000;
    std::vector<ScriptPort*> port;
    unsigned next_client = 0;

    template <class Packet>
    std::vector<ScriptPort::Served> results_of(unsigned worker, const std::vector<Client>& all,
                                               Packet&& packet) {
      for (unsigned n = 0; n < all.size(); ++n) port[worker]->give(packet(all[n]), n);
      return results(all.size());
    }
    /// Serves bursts as `reclaim` does. Returns the results of `count` packets, by their tags.
    std::vector<ScriptPort::Served> results(std::size_t count) {
      reclaim();
      std::vector<ScriptPort::Served> all(count);
      for (ScriptPort* const of : port) {
        for (auto& one : of->done) all.at(one.tag) = std::move(one);
        of->done.clear();
      }
      for (const auto& one : all) EXPECT_FALSE(one.bytes.empty()) << "a packet is lost";
      return all;
    }
  };

  static LineConfig line(std::size_t capacity) {
    return Bed::line(GetParam().table, GetParam().ageing, capacity, kTimeoutMs);
  }
  static bool is_v6() { return GetParam().is_v6; }
};

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  bool is_v6 = false;
  for (const auto& table : tables_for("sharded")) {
    all.push_back({table, ageing_for(table), is_v6});
    is_v6 = !is_v6;
    if (!kSanitized) all.push_back({table, ageing_for(table), is_v6});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Tables, ShardStepsTest, testing::ValuesIn(combinations()),
                         [](const auto& of) {
                           std::string name = of.param.table + (of.param.is_v6 ? "_v6" : "_v4");
                           std::ranges::replace(name, '+', 'p');
                           std::erase(name, '-');
                           return name;
                         });

// Worker 1's clock is 7 s or 23 days ahead of worker 0's clock, or 7 s behind it.
TEST_P(ShardStepsTest, AConnectionIsAsOldThereAsItWasHere) {
  for (const std::uint32_t ahead_ms : {7'000U, 2'000'000'000U, std::uint32_t{0} - 7'000U}) {
    SCOPED_TRACE(ahead_ms);
    Steps steps(line(500), Bed::balance(), 512, ahead_ms);
    auto idle = steps.clients(0, 100, is_v6());
    auto busy = steps.clients(0, 100, is_v6());
    steps.open(0, idle);
    steps.open(0, busy);
    const auto expect = [&](unsigned worker, const std::vector<Client>& all, std::uint32_t idle_ms,
                            ConnectionState state) {
      for (const Client& one : all) {
        const auto is = steps.find(worker, one);
        ASSERT_TRUE(is.has_value());
        EXPECT_EQ(is->idle_ms, idle_ms);
        EXPECT_EQ(is->expires_ms, kTimeoutMs - idle_ms);
        EXPECT_EQ(is->state, state);
      }
    };
    steps.pass(1'500);
    steps.move(0, 1);
    expect(1, idle, 1'500, ConnectionState::udp);
    steps.ask(1, busy);
    expect(1, busy, 0, ConnectionState::udp);
    steps.pass(1'000);
    steps.ask(1, busy);  // over 2 s after each connection's first packet: each becomes a stream
    expect(1, busy, 0, ConnectionState::udp_stream);
    steps.move(0, 0);
    expect(0, idle, 2'500, ConnectionState::udp);
    steps.pass(7'499);
    steps.move(0, 1);
    expect(1, idle, 9'999, ConnectionState::udp);
    expect(1, busy, 7'499, ConnectionState::udp_stream);
    EXPECT_EQ(steps.workers.counters().ended(), 0U);
    steps.pass(1);
    for (const Client& one : idle) {  // `scan` may end an expired connection later
      const bool may_be_there = GetParam().ageing == "scan";
      EXPECT_TRUE(may_be_there || !steps.find(1, one).has_value());
    }
    EXPECT_TRUE(steps.find(1, busy.front()).has_value());
    steps.check_packets();
    steps.pass(kLateMs);
    EXPECT_EQ(steps.live(0) + steps.live(1), 0U);
    EXPECT_EQ(steps.ended(Ending::timed_out), idle.size() + busy.size());
    steps.check_packets();
  }
}

// When all connections expire, some are packed for worker 1, and some still in worker 0's tables.
TEST_P(ShardStepsTest, WhatExpiresOnItsWayEndsOnce) {
  constexpr unsigned kClients = 400;
  Steps steps(line(1'000), Bed::balance(), 1'024);
  auto clients = steps.clients(0, kClients, is_v6());
  steps.open(0, clients);
  steps.begin(0, 1);
  for (unsigned n = 0; n < 10; ++n) steps.step(0);
  EXPECT_GT(steps.live(0), 0U);
  EXPECT_LT(steps.live(0), kClients);
  EXPECT_EQ(steps.live(1), 0U);
  steps.now_ms += kTimeoutMs + 1;
  // Packed connections have not aged and go on; those of worker 0 have expired and begin again.
  for (unsigned n = 0; n < kClients; ++n) steps.port[0]->give(clients[n].asks(), n);
  for (const auto& one : steps.results(kClients)) EXPECT_EQ(one.verdict, Verdict::tracked);
  EXPECT_EQ(steps.live(0), 0U);
  EXPECT_EQ(steps.live(1), kClients);
  const std::uint64_t again = steps.workers.counters().opened.value() - kClients;
  EXPECT_EQ(steps.ended(Ending::timed_out), again);
  EXPECT_EQ(steps.workers.counters().ended(), again);
  steps.check_packets();
  steps.pass(kTimeoutMs + kLateMs);
  EXPECT_EQ(steps.ended(Ending::timed_out), kClients + again);
  EXPECT_EQ(steps.workers.sources()->total(), 0U);
  steps.check_packets();
}

// Some connections are packed, and some still at worker 0. ICMP errors arrive at both workers.
TEST_P(ShardStepsTest, AnErrorFollowsItsConnection) {
  constexpr unsigned kClients = 300;
  Steps steps(line(1'000), Bed::balance(), 1'024);
  auto clients = steps.clients(0, kClients, is_v6());
  steps.open(0, clients);
  steps.begin(0, 1);
  for (unsigned n = 0; n < 10; ++n) steps.step(0);
  EXPECT_GT(steps.live(0), 0U);
  EXPECT_LT(steps.live(0), kClients);
  const End service = service_at(is_v6());
  for (unsigned n = 0; n < kClients; ++n) {
    const Client& one = clients[n];
    steps.port[n % 2]->give(error_about(packet_between(one.end, one.backend, one.protocol)), 2 * n);
    steps.port[n / 2 % 2]->give(error_about(packet_between(service, one.end, one.protocol)),
                                2 * n + 1);
  }
  const auto errors = steps.results(2 * kClients);
  for (unsigned n = 0; n < kClients; ++n) {
    const Client& one = clients[n];
    for (const auto& error : {errors[2 * n], errors[2 * n + 1]})
      EXPECT_EQ(error.verdict, Verdict::related);
    const std::byte* const to_client = errors[2 * n].bytes.data();
    EXPECT_EQ(destination_of(to_client).address, one.end.address);
    EXPECT_EQ(quoted_source_of(to_client), one.end);
    EXPECT_EQ(quoted_destination_of(to_client), service);
    const std::byte* const to_backend = errors[2 * n + 1].bytes.data();
    EXPECT_EQ(destination_of(to_backend).address, one.backend.address);
    EXPECT_EQ(quoted_source_of(to_backend), one.backend);
    EXPECT_EQ(quoted_destination_of(to_backend), one.end);
  }
  EXPECT_EQ(steps.live(1), kClients);
  steps.check_packets();
}

// Worker 1 is given shards until connections are evicted because its tables are full.
TEST_P(ShardStepsTest, WhatFindsNoPlaceEndsAsEvicted) {
  constexpr unsigned kCapacity = 64;
  for (const bool evicts : {false, true}) {
    SCOPED_TRACE(evicts);
    LineConfig config = line(kCapacity);
    config.evicts = evicts;
    config.timeouts = Timeouts::all(10 * kTimeoutMs);
    config.source_limit = {.most = 1'000'000, .prefix_v4 = 16};  // all clients are one source
    BalanceConfig balance = Bed::balance();
    balance.stateless_when_full = false;
    Steps steps(config, balance);
    std::vector<Client> before;
    std::vector<Client> last;
    for (unsigned shard = 0; shard < Bed::kShards && steps.ended(Ending::evicted) == 0;
         shard += 2) {
      before.insert(before.end(), last.begin(), last.end());
      last = steps.clients(shard, 50, is_v6());
      auto unproved = steps.clients(shard, 10, is_v6());
      steps.open(0, last);
      steps.open(0, unproved, false);
      last.insert(last.end(), unproved.begin(), unproved.end());
      steps.pass(100);
      steps.move(shard, 1);
    }
    const std::uint64_t evicted = steps.ended(Ending::evicted);
    EXPECT_GT(evicted, 0U);
    EXPECT_EQ(steps.workers.counters().ended(), evicted);
    EXPECT_EQ(steps.live(0), 0U);
    std::vector<Client> without;
    for (const Client& one : last) {
      if (!steps.find(1, one)) without.push_back(one);
    }
    for (const Client& one : before) {
      const bool is_there = steps.find(1, one).has_value();
      EXPECT_TRUE(evicts || is_there);
      if (!is_there) without.push_back(one);
    }
    EXPECT_EQ(without.size(), evicted);
    steps.check_packets();  // checks the counts of sources, too
    // Packets of evicted connections belong to no connection: each opens one, or is dropped.
    const std::uint64_t opened = steps.workers.counters().opened.value();
    std::uint64_t anew = 0;
    for (const auto& one : steps.ask(0, without)) {
      EXPECT_TRUE(one.verdict == Verdict::table_full || one.verdict == Verdict::tracked);
      EXPECT_EQ(one.is_forwarded, one.verdict == Verdict::tracked);
      anew += one.is_forwarded ? 1U : 0U;
    }
    EXPECT_EQ(steps.workers.counters().opened.value(), opened + anew);
    // Under `lazy` an insertion may replace expired entries, so some clients may get an entry.
    EXPECT_TRUE(GetParam().ageing == "lazy" || anew == 0);
    steps.check_packets();
    // Once all connections have expired, clients get entries again.
    steps.pass(10 * kTimeoutMs + kLateMs);
    EXPECT_EQ(steps.workers.sources()->total(), 0U);
    without.resize(std::min<std::size_t>(without.size(), 30));
    steps.open(0, without);
    EXPECT_EQ(steps.workers.sources()->total(), without.size());
    steps.check_packets();
  }
}

// Worker 0's table is full, so it serves further clients by Maglev without entries. At worker 1
// these clients get entries and keep their backends, also if their packets wait at worker 0 when
// the move begins.
TEST_P(ShardStepsTest, WhatWasServedWithoutAnEntryKeepsItsBackend) {
  constexpr unsigned kCapacity = 64;
  for (const bool comes_first : {false, true}) {
    SCOPED_TRACE(comes_first);
    Steps steps(line(kCapacity), Bed::balance());
    auto full = steps.clients(2, kCapacity, is_v6());
    steps.open(0, full);
    std::vector<Client> over;
    while (over.size() < 20) {
      const auto some = steps.clients(0, 30, is_v6());
      const auto asked = steps.ask(0, some);
      for (std::size_t n = 0; n < some.size(); ++n) {
        if (asked[n].verdict == Verdict::tracked) continue;  // the table had room for this client
        EXPECT_EQ(asked[n].verdict, Verdict::stateless);
        over.push_back(some[n]);
        over.back().backend = destination_of(asked[n].bytes.data());
      }
    }
    constexpr unsigned kTimes = 8;  // packets of each client: too many for one burst of worker 1
    const auto ask_again = [&] {
      for (unsigned n = 0; n < kTimes * over.size(); ++n)
        steps.port[0]->give(over[n % over.size()].asks(), n);
    };
    if (comes_first) {
      ask_again();
      steps.begin(0, 1);
    } else {
      steps.move(0, 1);
      ask_again();
    }
    const auto after = steps.results(kTimes * over.size());
    for (std::size_t n = 0; n < after.size(); ++n) {
      EXPECT_EQ(after[n].verdict, Verdict::tracked);
      EXPECT_EQ(destination_of(after[n].bytes.data()), over[n % over.size()].backend);
    }
    for (const auto& one : steps.answer(0, over)) {
      EXPECT_EQ(one.verdict, Verdict::tracked);
      EXPECT_EQ(source_of(one.bytes.data()), service_at(is_v6()));
    }
    steps.check_packets();
  }
}

// Worker 1 holds the shard's packets: worker 0 serves no burst, so passes on no marker (moving.h).
TEST_P(ShardStepsTest, WhatCannotBeHeldIsDroppedAndCounted) {
  constexpr unsigned kMore = 100;
  constexpr unsigned kAll = ShardsOfWorker::kMostHeld + kMore;
  Steps steps(line(100), Bed::balance(), kAll + Burst::kMax);
  auto clients = steps.clients(0, 10, is_v6());
  steps.open(0, clients);
  steps.begin(0, 1);
  steps.step(0);
  steps.step(1);
  ASSERT_TRUE(steps.owners->moves().is_under_way());
  const std::uint64_t dropped = steps.dropped();
  for (unsigned n = 0; n < kAll; ++n) steps.port[1]->give(clients[n % clients.size()].asks(), n);
  while (!steps.has_given_all()) steps.step(1, 16);
  EXPECT_EQ(steps.not_handed(), kMore);
  EXPECT_EQ(steps.dropped() - dropped, kMore);
  EXPECT_TRUE(steps.port[1]->done.empty());
  EXPECT_EQ(steps.pools[1]->on_their_way(), ShardsOfWorker::kMostHeld);
  steps.reclaim();
  const auto& done = steps.port[1]->done;
  ASSERT_EQ(done.size(), ShardsOfWorker::kMostHeld);
  for (unsigned n = 0; n < done.size(); ++n) {
    ASSERT_EQ(done[n].tag, n);
    ASSERT_EQ(done[n].verdict, Verdict::tracked);
  }
  EXPECT_EQ(steps.not_handed(), kMore);
  steps.check_packets();
}

// Worker 1 serves no burst, so the ring to it is full.
TEST_P(ShardStepsTest, WhatCannotFollowItsParcelIsDroppedAndCounted) {
  Steps steps(line(500), Bed::balance(), Exchange::kRing + 2 * Burst::kMax);
  auto clients = steps.clients(0, 10, is_v6());
  auto others = steps.clients(1, 10, is_v6());
  auto begins = steps.clients(0, 10, is_v6());
  steps.open(0, clients);
  steps.open(1, others);
  for (unsigned n = 0; n < Exchange::kRing; ++n)
    steps.port[0]->give(others[n % others.size()].asks(), n);
  while (!steps.has_given_all()) steps.step(0, 16);
  EXPECT_EQ(steps.not_handed(), 0U);
  steps.begin(0, 1);
  for (const Client& one : begins) steps.port[0]->give(one.asks());
  while (!steps.has_given_all()) steps.step(0, 16);
  EXPECT_EQ(steps.not_handed(), begins.size());
  EXPECT_EQ(steps.dropped(), begins.size());
  steps.reclaim();
  EXPECT_EQ(steps.live(1), clients.size() + others.size());
  EXPECT_EQ(steps.port[1]->done.size(), Exchange::kRing);
  steps.check_packets();
}

// When the ports are destroyed, some packets wait in rings, and some are held.
TEST_P(ShardStepsTest, WhatIsHeldComesBackAtTheEnd) {
  Steps steps(line(500), Bed::balance(), 2'048);
  auto clients = steps.clients(0, 300, is_v6());
  auto others = steps.clients(1, 100, is_v6());
  steps.open(0, clients);
  steps.begin(0, 1);
  for (const Client& one : others) steps.port[0]->give(one.asks());
  for (unsigned n = 0; n < 10; ++n) steps.step(0);
  for (unsigned n = 0; n < 10; ++n) {
    steps.step(0, 6);
    steps.step(1, 6);
    if (steps.owners->worker_of(0) == 1) break;
  }
  steps.step(1, 6);
  for (const Client& one : clients) steps.port[1]->give(one.asks());
  for (const Client& one : clients) steps.port[0]->give(one.asks());
  steps.step(1, 16);
  EXPECT_GT(steps.pools[1]->on_their_way(), 0U);
  steps.step(0, 16);
  EXPECT_GT(steps.pools[0]->on_their_way(), 0U);
  steps.ports.clear();
  for (const auto& pool : steps.pools) {
    EXPECT_EQ(pool->on_their_way(), 0U);
    EXPECT_EQ(pool->misplaced(), 0U);
  }
}

}  // namespace
}  // namespace millrace::test
