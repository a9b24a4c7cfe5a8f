// Tests workers that share tables: any worker may get a packet of any connection at any time. The
// tests run for every combination of a sharing scheme with shared tables, a table that it can use,
// and an ageing scheme.
//
// The oracle is consistent hashing: a connection's backend is a function of its key. So a packet
// that found another connection's record most likely goes to a wrong backend, and a connection that
// was opened twice is counted twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "endpoint.h"
#include "worker/threads.h"
#include "worker/workers.h"

namespace millrace {
namespace {

using test::Bytes;
using test::Endpoint;
using test::packet;

constexpr unsigned kWorkers = 4;
constexpr unsigned kBackends = 7;
constexpr std::uint16_t kService = 80;
constexpr std::uint16_t kBackendPort = 8080;

/// Returns the number in an environment variable, or 1 if it is not set: MILLRACE_TEST_SEED, or
/// MILLRACE_TEST_REPEAT, by which the number of packets is multiplied.
std::uint64_t number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

/// Clients with successive numbers use different services, so that a reply translated by another
/// client's record is recognised.
constexpr unsigned kServices = 5;
Endpoint service_of(unsigned n) {
  return {{203, 0, 113, static_cast<std::uint8_t>(10 + n % kServices)}, kService};
}

Endpoint client(unsigned n) {
  return {{10, 1, static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n)},
          static_cast<std::uint16_t>(1024 + n)};
}

/// The time of all ports, which each burst advances by 1 ms; and how many ports still have packets.
class Time {
 public:
  explicit Time(unsigned ports) : giving_(ports) {}
  Tick next() { return Tick{now_.fetch_add(1) + 1}; }
  void has_given() { --giving_; }
  bool all_have_given() const { return giving_ == 0; }

 private:
  std::atomic<std::uint32_t> now_ = 0;
  std::atomic<unsigned> giving_;
};

/// The backend of each client's connection, by client, learned in a run with one worker.
using Backends = std::vector<Endpoint>;

/// A port that receives packets of random clients and replies to them, and checks the packets that
/// are sent.
class RandomPort final : public Port {
 public:
  struct Plan {
    unsigned clients;
    std::size_t packets;
    std::uint64_t seed;
    const Backends* backends;  ///< null: the run learns them
    /// Number of empty bursts after the packets of all ports; up to 1000 times as many while `line`
    /// has live connections, as no id is reclaimed while the operating system halts a worker.
    unsigned idle_bursts = 0;
    const Line* line = nullptr;
  };

  RandomPort(const Plan& plan, Time& time) : plan_(plan), time_(&time), random_(plan.seed) {
    for (unsigned n = 0; n < plan.clients; ++n)
      requests_.push_back(packet(client(n), service_of(n)));
    if (plan.backends == nullptr) {
      learned.resize(plan.clients);
      return;
    }
    for (unsigned n = 0; n < plan.clients; ++n)
      replies_.push_back(packet((*plan.backends)[n], client(n)));
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    burst.size = 0;
    burst.now = time_->next();
    if (given_ >= plan_.packets) {
      if (!std::exchange(has_given_, true)) time_->has_given();
      if (!time_->all_have_given()) return true;
      const bool left = plan_.line != nullptr && plan_.line->live().v4 > 0;
      return idle_++ < (left ? 1000 : 1) * plan_.idle_bursts;
    }
    auto& slots = slots_[burst_++ % kBurstsInFlight];
    const auto size = static_cast<unsigned>(1 + random_() % 32);
    for (; burst.size < size; ++burst.size, ++given_) {
      const bool learn = plan_.backends == nullptr;
      const auto n =
          static_cast<unsigned>(learn ? given_ % plan_.clients : random_() % plan_.clients);
      const bool reply = !learn && random_() % 3 == 0;
      const Bytes& bytes = reply ? replies_[n] : requests_[n];
      std::byte* to = slots[burst.size].data() + 128;
      std::ranges::copy(bytes, to);
      burst.data[burst.size] = to;
      burst.length[burst.size] = static_cast<std::uint16_t>(bytes.size());
      burst.wire_length[burst.size] = burst.length[burst.size];
      burst.handle[burst.size] = n << 1 | unsigned{reply};
    }
    return true;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    for (unsigned i = 0; i < burst.size; ++i) {
      const auto n = static_cast<unsigned>(burst.handle[i] >> 1);
      const Endpoint source = test::source_of(burst.data[i]);
      const Endpoint destination = test::destination_of(burst.data[i]);
      if (plan_.backends == nullptr) {
        learned[n] = destination;
      } else if ((burst.handle[i] & 1) != 0) {
        // A reply is translated, or untouched while its connection has no entry.
        wrong += !(source == service_of(n) || source == (*plan_.backends)[n]) ||
                 destination != client(n);
        translated += source == service_of(n);
      } else {
        wrong += destination != (*plan_.backends)[n] || source != client(n);
      }
      lost += (forward >> i & 1) == 0;
    }
  }

  Backends learned;
  std::uint64_t wrong = 0;
  std::uint64_t lost = 0;
  std::uint64_t translated = 0;

 private:
  Plan plan_;
  Time* time_;
  std::mt19937_64 random_;
  std::vector<Bytes> requests_;
  std::vector<Bytes> replies_;
  std::array<std::array<std::array<std::byte, 256>, Burst::kMax>, kBurstsInFlight> slots_;
  unsigned burst_ = 0;
  std::size_t given_ = 0;
  bool has_given_ = false;
  unsigned idle_ = 0;
};

struct Scheme {
  std::string table;
  std::string sharing;
  std::string ageing;

  friend void PrintTo(const Scheme& scheme, std::ostream* to) {
    *to << scheme.table << ", " << scheme.sharing << ", " << scheme.ageing;
  }
};

class SharingTest : public testing::TestWithParam<Scheme> {
 protected:
  SharingTest() {
    balance_.services = {};
    for (unsigned n = 0; n < kServices; ++n) {
      ServiceSpec<AddressV4> spec{
          .address = {service_of(n).address}, .port = kService, .protocol = 6, .backends = {}};
      for (std::uint8_t last = 1; last <= kBackends; ++last)
        spec.backends.push_back({{{10, 0, 0, last}}, kBackendPort});
      spec.direct = true;  // a reply may come before its connection begins
      balance_.services.v4.push_back(spec);
    }
    balance_.maglev_table_size = 251;
  }

  Workers make(unsigned count, std::size_t capacity, std::uint32_t timeout_ms) const {
    LineConfig config{.table = GetParam().table,
                      .sharing = count == 1 ? "sharded" : GetParam().sharing,
                      .ageing = GetParam().ageing,
                      .capacity = capacity,
                      .capacity_v6 = 1,
                      .timeouts = Timeouts::all(timeout_ms),
                      .interval_ms = 1,
                      .pages = Pages::small,
                      .secret = Secret::from_seed(seed_)};
    auto workers = make_workers(count, config, balance_);
    EXPECT_TRUE(workers.has_value()) << workers.error().message;
    return std::move(*workers);
  }

  Backends learn(unsigned clients) {
    Time time(1);
    RandomPort port({.clients = clients, .packets = clients, .seed = 1, .backends = nullptr}, time);
    Port* pointer = &port;
    EXPECT_TRUE(make(1, 2 * clients, 1'000'000).run({&pointer, 1}).has_value());
    return port.learned;
  }

  /// Runs the workers, and returns their ports.
  std::vector<RandomPort> run(Workers& workers, RandomPort::Plan plan) const {
    Time time(kWorkers);
    std::vector<RandomPort> ports;
    for (unsigned n = 0; n < kWorkers; ++n) {
      plan.seed = seed_ * 1000 + n;
      if (GetParam().ageing != "none") plan.line = &workers.line(n);
      ports.emplace_back(plan, time);
    }
    std::vector<Port*> pointers;
    for (auto& port : ports) pointers.push_back(&port);
    EXPECT_TRUE(workers.run(pointers).has_value());
    return ports;
  }

  static void check(const Workers& workers) {
    for (unsigned n = 0; n < kWorkers; ++n) {
      const auto ok = workers.line(n).check_invariants();
      ASSERT_TRUE(ok.has_value()) << ok.error().message;
    }
  }

  std::uint64_t seed_ = number_of("MILLRACE_TEST_SEED");
  std::uint64_t longer_ = number_of("MILLRACE_TEST_REPEAT");
  BalanceConfig balance_;

 private:
  testing::ScopedTrace repeat_{__FILE__, __LINE__,
                               "repeat with MILLRACE_TEST_SEED=" + std::to_string(seed_)};
};

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> all;
  for (const auto& table : TableSchemes::names()) {
    for (const auto& sharing : SharingSchemes::names()) {
      const auto tables = tables_for(sharing);
      if (!shares_tables(sharing) || std::ranges::count(tables, table) == 0) continue;
      for (const auto& ageing : AgeingSchemes::names()) all.push_back({table, sharing, ageing});
    }
  }
  return test::in_turn(std::move(all), AgeingSchemes::kSize);
}
INSTANTIATE_TEST_SUITE_P(AllSchemes, SharingTest, testing::ValuesIn(all_schemes()),
                         [](const auto& p) {
                           std::string name =
                               p.param.table + "_" + p.param.sharing + "_" + p.param.ageing;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '+'; }, '_');
                           return name;
                         });

TEST_P(SharingTest, AConnectionIsOneWhoeverMeetsIt) {
  constexpr unsigned kClients = 500;
  const Backends backends = learn(kClients);
  auto workers = make(kWorkers, kClients, 1'000'000'000);
  const auto ports = run(
      workers, {.clients = kClients, .packets = 5'000 * longer_, .seed = 0, .backends = &backends});
  for (const auto& port : ports) {
    EXPECT_EQ(port.wrong, 0U);
    EXPECT_EQ(port.lost, 0U);
    EXPECT_GT(port.translated, 0U);
  }
  std::uint64_t translated = 0;
  for (const auto& port : ports) translated += port.translated;
  for (const auto& service : services_of(workers)) {
    for (const auto& backend : service.backends) translated -= backend.replies;
  }
  EXPECT_EQ(translated, 0U) << "the balancers' count of replies is not that of translated replies";
  EXPECT_EQ(workers.counters().opened.value(), kClients);
  EXPECT_EQ(workers.counters().refused.value(), 0U);
  EXPECT_EQ(workers.report_v4().live, kClients);
  EXPECT_EQ(workers.counters().peak.value(), kClients);
  check(workers);
}

// Under all ageing schemes but `none`, connections end all the time, and their ids are soon reused.
TEST_P(SharingTest, NobodyMeetsWhatAnotherLeft) {
  constexpr unsigned kClients = 2000;
  const Backends backends = learn(kClients);
  auto workers = make(kWorkers, kClients, 40);
  const auto ports = run(workers, {.clients = kClients,
                                   .packets = 10'000 * longer_,
                                   .seed = 0,
                                   .backends = &backends,
                                   .idle_bursts = 500});
  for (const auto& port : ports) {
    EXPECT_EQ(port.wrong, 0U);
    EXPECT_EQ(port.lost, 0U);
  }
  // While the system halts a worker, no id is reclaimed, so some connections may find no place.
  EXPECT_EQ(workers.counters().opened.value() - workers.counters().ended(),
            workers.report_v4().live);
  if (GetParam().ageing == "none") {
    EXPECT_EQ(workers.counters().opened.value(), kClients);
  } else {
    EXPECT_GT(workers.counters().ended(), kClients);
    EXPECT_EQ(workers.report_v4().live, 0U);
  }
  check(workers);
}

}  // namespace
}  // namespace millrace
