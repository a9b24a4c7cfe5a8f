#include "bench/overload_port.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>

#include "parse/parse.h"
#include "shard/indirection.h"

namespace millrace::bench {
namespace {

/// Stands in for a line. Sends clients' packets to the first backend, unless the test chooses
/// otherwise, and backends' packets from the service's address.
class Relay {
 public:
  enum class Does : std::uint8_t { right, refuse, misdirect };
  /// Chooses what happens to a client's packet.
  using Choose = std::function<Does(const KeyV4& client)>;

  Relay() {
    BalanceConfig config;
    config.services = {.v4 = {played_service()}};
    balance_ = std::move(*Balance::create(config));
  }

  void run(OverloadPort& port, const Choose& choose) {
    bool more = true;
    while (more) {
      burst_.clear();
      more = port.receive(burst_);
      parse(burst_, port.link_type());
      burst_.v4.replies = balance_->v4().steer(burst_.v4.keys(), {}).by_destination;
      port.send(burst_, serve(choose));
    }
  }

  std::function<void(const Burst&)> on_burst = [](const Burst&) {};
  WorkerCounters counters;

 private:
  std::uint64_t serve(const Choose& choose) {
    on_burst(burst_);
    std::uint64_t forward = all_of(burst_);
    const auto& lane = burst_.v4;
    EXPECT_EQ(lane.size, burst_.size);
    for (unsigned i = 0; i < lane.size; ++i) {
      const unsigned packet = lane.packet[i];
      if (lane.side(i) == Side::reply) {
        burst_.verdict[packet] = Verdict::tracked;
        std::memcpy(burst_.data[packet] + kSource, &service_.address, 4);
        continue;
      }
      const Does does = choose(lane.key[i]);
      burst_.verdict[packet] = does == Does::refuse ? Verdict::table_full : Verdict::tracked;
      std::memcpy(burst_.data[packet] + kDestination,
                  &service_.backends[does == Does::misdirect ? 1 : 0].address, 4);
      if (does != Does::refuse) continue;
      counters.refused.add(1);
      forward &= ~(std::uint64_t{1} << packet);
    }
    return forward;
  }

  static constexpr unsigned kSource = 26;
  static constexpr unsigned kDestination = 30;
  ServiceSpec<AddressV4> service_ = played_service();
  std::unique_ptr<Balance> balance_;
  Burst burst_;
};

std::vector<std::uint32_t> everybody(const Crowd& crowd) {
  std::vector<std::uint32_t> all(crowd.all());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Returns the client's number, which must be below 65,000: it is the number of the client's host.
unsigned number_of(const KeyV4& client) {
  return client.source.bytes[2] * 256U + client.source.bytes[3] - 1;
}

Relay::Does serve_all(const KeyV4&) { return Relay::Does::right; }

class OverloadPorts : public testing::Test {
 protected:
  OverloadPort port_of(const Crowd& crowd, std::vector<std::uint32_t> clients) {
    return {clock_, crowd, std::move(clients), {}, relay_.counters};
  }
  Judgement judged(const Crowd& crowd, const Relay::Choose& opening,
                   const Relay::Choose& overload) {
    OverloadPort port = port_of(crowd, everybody(crowd));
    port.play(OverloadPort::Act::opening);
    relay_.run(port, opening);
    port.play(OverloadPort::Act::overload);
    relay_.run(port, overload);
    return port.judgement();
  }

  CycleClock clock_;
  Relay relay_;
};

TEST_F(OverloadPorts, PlayEveryPacketOnce) {
  const Judgement all = judged({80, 41}, serve_all, serve_all);
  EXPECT_EQ(all.packets, 80U * 4 + 41 + 5 * 4);  // every tenth new client is genuine
  EXPECT_EQ(all.established_good, all.established_due);
  EXPECT_EQ(all.established_due, 80U * 4);
  EXPECT_EQ(all.genuine_good, all.genuine_due);
  EXPECT_EQ(all.genuine_due, 80U * 4 + 5 * 5);
  EXPECT_EQ(all.others, 41U);
  EXPECT_EQ(all.clients, 5U);
  EXPECT_EQ(all.served, 5U);
  EXPECT_EQ(all.without_entry + all.misdirected, 0U);
  EXPECT_FALSE(all.first_refused);
}

TEST_F(OverloadPorts, CountWhoIsRefused) {
  const auto refuse_from_100 = [](const KeyV4& client) {
    return number_of(client) < 100 ? Relay::Does::right : Relay::Does::refuse;
  };
  const Judgement all = judged({80, 41}, serve_all, refuse_from_100);
  EXPECT_EQ(all.first_refused, 100U);
  EXPECT_EQ(all.without_entry, 21U);
  EXPECT_EQ(all.served, 2U);  // numbers 80 and 90
  EXPECT_EQ(all.genuine_good, 80U * 4 + 2 * 5);
  EXPECT_EQ(all.packets, 80U * 4 + 41 + 2 * 4);
  EXPECT_EQ(all.misdirected, 0U);
}

TEST_F(OverloadPorts, SendNoMoreForWhoWasRefusedWhenItBegan) {
  const auto refuse_7 = [](const KeyV4& client) {
    return number_of(client) == 7 ? Relay::Does::refuse : Relay::Does::right;
  };
  const Judgement all = judged({80, 41}, refuse_7, serve_all);
  EXPECT_EQ(all.first_refused, 7U);
  EXPECT_EQ(all.packets, 79U * 4 + 41 + 5 * 4);
  EXPECT_EQ(all.established_due, 80U * 4);
  EXPECT_EQ(all.established_good, 79U * 4);
  EXPECT_EQ(all.misdirected, 0U);
}

TEST_F(OverloadPorts, SeeWhatIsMisdirected) {
  const auto misdirect_7 = [](const KeyV4& client) {
    return number_of(client) == 7 ? Relay::Does::misdirect : Relay::Does::right;
  };
  const Judgement all = judged({80, 41}, serve_all, misdirect_7);
  EXPECT_EQ(all.misdirected, 2U);
  EXPECT_EQ(all.established_good, 80U * 4 - 2);
}

TEST_F(OverloadPorts, HaveTheClientsThatTheirWorkerIsGiven) {
  constexpr unsigned kWorkers = 3;
  const Crowd crowd{2000, 1000};
  const auto spread = spreads().front().create(Secret::from_seed(1));
  const Indirection indirection(Indirection::kMost, kWorkers);
  const auto clients = clients_by_worker(crowd, *spread, kWorkers);
  std::set<std::uint32_t> all;
  Judgement sum;
  for (unsigned worker = 0; worker < kWorkers; ++worker) {
    all.insert(clients[worker].begin(), clients[worker].end());
    relay_.on_burst = [&](const Burst& burst) {
      const auto& lane = burst.v4;
      std::array<std::uint32_t, Burst::kMax> hashes;
      spread->hash({.by_source = lane.originators(), .by_destination = lane.replies}, lane.keys(),
                   std::span(hashes).first(lane.size));
      for (unsigned i = 0; i < lane.size; ++i)
        EXPECT_EQ(indirection.worker_of(indirection.shard_of(hashes[i])), worker);
    };
    OverloadPort port = port_of(crowd, clients[worker]);
    port.play(OverloadPort::Act::opening);
    relay_.run(port, serve_all);
    port.play(OverloadPort::Act::overload);
    relay_.run(port, serve_all);
    EXPECT_EQ(port.entries_below(crowd.all()), clients[worker].size());
    sum.add(port.judgement());
  }
  EXPECT_EQ(all.size(), crowd.all());
  EXPECT_EQ(sum.packets, 2000U * 4 + 1000 + 100 * 4);
  EXPECT_EQ(sum.served, 100U);
}

TEST(Judgement, TheFirstRefusedIsTheFirstOfAll) {
  Judgement sum;
  for (const auto first : {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(5),
                           std::optional<std::uint64_t>(3), std::optional<std::uint64_t>()})
    sum.add({.first_refused = first});
  EXPECT_EQ(sum.first_refused, 3U);
}

}  // namespace
}  // namespace millrace::bench
