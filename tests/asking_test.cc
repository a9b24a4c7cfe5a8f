// Tests running workers while another thread changes their services, lists their connections and
// ends some of them. No connection that may have had a reply changes its backend, is lost or is
// listed twice, unless that thread ends the connection; and counters agree with live connections.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "balance_workers.h"
#include "core/test_sanitizers.h"
#include "function/kinds.h"
#include "serving.h"

namespace millrace {
namespace {

constexpr unsigned kWorkers = 3;
constexpr unsigned kConnections = 3000;

class AskingTest : public testing::TestWithParam<const char*> {
 protected:
  AskingTest() : random_(seed_) { RecordProperty("seed", static_cast<int>(seed_)); }

  /// Returns a random number from 0 to `below` - 1.
  unsigned draw(std::size_t below) { return static_cast<unsigned>(random_() % below); }

  /// Returns the default services with random subsets of their backends, and a random scheduler.
  Services some_services() {
    Services services = default_services();
    const auto thin = [this](auto& specs) {
      constexpr std::array<const char*, 3> kSchedulers{"maglev", "round-robin",
                                                       "least-connections"};
      for (auto& spec : specs) {
        spec.scheduler = kSchedulers[draw(kSchedulers.size())];
        spec.move_udp = false;
        std::erase_if(spec.backends, [this](const auto&) { return draw(3) == 0; });
        for (auto& backend : spec.backends) backend.weight = 1 + draw(3);
      }
    };
    thin(services.v4);
    thin(services.v6);
    return services;
  }

  /// Makes `workers` serve packets, and calls `ask` several times meanwhile.
  template <class Ask>
  void run(Workers& workers, Ask&& ask) {
    serve(workers,
          {.connections = kConnections, .packets = 20'000, .seed = seed_ % 1000, .midstream = true},
          [&] {
            for (int round = 0; round < (kSanitized ? 3 : 6) && !HasFailure(); ++round) ask();
          });
    EXPECT_FALSE(workers.ask_all([](unsigned) {})) << "a worker that has ended was asked";
  }

  template <class K>
  static bool is_listed(const PlanFor<K>& plan, const typename K::Address& backend) {
    const auto& specs = plan.services.front()->spec.backends;
    return std::ranges::any_of(specs, [&](const auto& one) { return one.address == backend; });
  }

  /// Returns the backend of every live connection that has had a reply or may have had one
  /// (`is_answered`), by the connection's key.
  static std::map<std::string, std::string> backends(Workers& workers) {
    std::map<std::string, std::string> all;
    for (unsigned n = 0; n < kWorkers; ++n) {
      const auto note = [&](const ListedConnection& connection) {
        std::visit(
            [&]<class K>(const K& key) {
              const K& to = std::get<K>(connection.translated);
              if (!is_answered(connection.state)) {
                EXPECT_TRUE(is_listed(balance_of(workers).plan()->family<K>(), to.destination))
                    << "a connection without a reply has a backend that was removed";
                return;
              }
              const auto text = [](const auto& value) {
                return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
              };
              EXPECT_TRUE(all.emplace(text(key), text(to.destination)).second)
                  << "a connection is listed twice";
            },
            connection.key);
        return Visit::leave;
      };
      for (LineCursor at; at.at != LineCursor::At::end;)
        EXPECT_TRUE(workers.ask(n, [&] { at = workers.line(n).visit(at, note); }));
    }
    return all;
  }

  static std::uint64_t on_backends(const Workers& workers) {
    std::uint64_t live = 0;
    for (const auto& service : services_of(workers)) {
      for (const auto& backend : service.backends) live += backend.live;
    }
    return live;
  }

  Workers make() const {
    const LineConfig line{.sharing = GetParam(),
                          .capacity = 20'000,
                          .capacity_v6 = 20'000,
                          .timeouts = Timeouts::all(1'000'000),
                          .pages = Pages::small,
                          .secret = Secret::from_seed(1)};
    return *Workers::create(kWorkers, line, default_function());
  }

  unsigned seed_ = drawn_seed();
  std::mt19937 random_;
};

TEST_P(AskingTest, ConnectionsStayWhereTheyAreOnceTheyAreAnswered) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Workers workers = make();
  std::map<std::string, std::string> known;
  run(workers, [&] {
    const auto ok = update(workers, some_services());
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
    auto now = backends(workers);
    for (const auto& [key, backend] : known) {
      const auto at = now.find(key);
      ASSERT_NE(at, now.end()) << "a connection is gone";
      ASSERT_EQ(at->second, backend) << "a connection has changed its backend";
    }
    known = std::move(now);
  });
  EXPECT_GT(known.size(), kConnections / 2);
  EXPECT_EQ(on_backends(workers), workers.report_v4().live + workers.report_v6().live);
}

TEST_P(AskingTest, WhoIsEndedIsGoneOnce) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Workers workers = make();
  std::uint64_t ended = 0;
  run(workers, [&] {
    ASSERT_TRUE(update(workers, some_services()).has_value());
    const unsigned n = draw(kWorkers);
    const auto end_some = [&](const ListedConnection&) {
      if (draw(8) != 0) return Visit::leave;
      ++ended;
      return Visit::end;
    };
    for (LineCursor at; at.at != LineCursor::At::end;)
      ASSERT_TRUE(workers.ask(n, [&] { at = workers.line(n).visit(at, end_some); }));
  });
  const WorkerCounters counters = workers.counters();
  EXPECT_GT(ended, 0U);
  EXPECT_EQ(counters.closed[static_cast<std::size_t>(Ending::killed)].value(), ended);
  const std::uint64_t live = workers.report_v4().live + workers.report_v6().live;
  EXPECT_EQ(counters.opened.value(), counters.ended() + live);
  EXPECT_EQ(on_backends(workers), live);
}

TEST_P(AskingTest, WhoHasEndedKeepsNobodyFromBeingAsked) {
  Workers workers = make();
  const auto ask_all = [&] {
    EXPECT_TRUE(comes_true([&] { return !workers.ask(0, [] {}); }));
    std::array<bool, kWorkers> asked{};
    EXPECT_FALSE(workers.ask_all([&asked](unsigned n) { asked[n] = true; }));
    EXPECT_EQ(asked, (std::array{false, true, true}));
  };
  serve(workers, {.connections = kConnections, .packets = 20'000, .midstream = true}, ask_all, 1);
}

TEST(ListingTest, ConnectionsExpireUnlessNothingAges) {
  for (const char* const ageing : {"none", "wheel"}) {
    const LineConfig line{.ageing = ageing,
                          .capacity = 20'000,
                          .capacity_v6 = 20'000,
                          .timeouts = Timeouts::all(1'000'000),
                          .pages = Pages::small,
                          .secret = Secret::from_seed(1)};
    Workers workers = *Workers::create(1, line, default_function());
    serve(workers, {.connections = 100, .packets = 1000, .midstream = true},
          [&] { EXPECT_TRUE(comes_true([&] { return workers.counters().in.value() >= 1000; })); });
    unsigned count = 0;
    workers.list([&](const WorkersConnection& is) {
      ++count;
      EXPECT_EQ(is.connection.expires_ms.has_value(), std::string(ageing) == "wheel");
    });
    EXPECT_GT(count, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Sharing, AskingTest,
                         testing::Values("sharded", "lock-free-race", "mutex", "spinlock"));

}  // namespace
}  // namespace millrace
