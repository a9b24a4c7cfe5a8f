// Tests new workers that take over the connections of old workers, which go on serving meanwhile.
// In the end old and new workers have the same connections, whatever their tables and wherever the
// stream of records is cut, unless the new workers lack a service, backend or function.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "control/taking_over.h"
#include "function/balance/kind.h"
#include "function/chained.h"
#include "function/command_done.h"
#include "function/forward/kind.h"
#include "serving.h"

namespace millrace {
namespace {

constexpr unsigned kConnections = 3000;

/// Returns the default services, which are one-way, and two services that translate replies.
Services services() {
  Services all = default_services();
  const auto everything = all.v4.front();
  for (unsigned last : {10U, 11U}) {
    ServiceSpec<AddressV4> one{.address = {{198, 19, 0, static_cast<std::uint8_t>(last)}},
                               .backends = everything.backends};
    for (auto& backend : one.backends) backend.port = 8080;
    all.v4.push_back(one);
  }
  return all;
}

struct Scheme {
  const char* table;
  const char* sharing;
  unsigned workers;
  std::uint32_t most_of_source = 0;

  LineConfig line() const {
    LineConfig line{.table = table,
                    .sharing = sharing,
                    .capacity = 20'000,
                    .capacity_v6 = 20'000,
                    .timeouts = Timeouts::all(1'000'000),
                    .pages = Pages::small,
                    .secret = Secret::random()};
    line.source_limit.most = most_of_source;
    return line;
  }
  Workers make(const Services& of = services()) const {
    auto made = make_workers(workers, line(), {.services = of}, kServingEntries);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }
  Workers make_with(std::shared_ptr<const FunctionSettings> settings) const {
    auto made = Workers::create(workers, line(), std::move(settings), {}, kServingEntries);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }
  std::shared_ptr<Owners> owners() const {
    std::unique_ptr<Spread> spread;
    if (!shares_tables(sharing)) spread = spread_named("keyed")->create(serving_secret());
    return std::make_shared<Owners>(std::move(spread), Indirection(kServingEntries, workers),
                                    workers);
  }
};

using Change = std::pair<Scheme, Scheme>;
std::string name_of(const testing::TestParamInfo<Change>& is) {
  const auto& [from, to] = is.param;
  std::string name = std::string(from.table) + from.sharing + "To" + to.table + to.sharing;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name + std::to_string(to.workers);
}

class HandoverTest : public testing::TestWithParam<Change> {
 protected:
  HandoverTest() : random_(seed_) { RecordProperty("seed", static_cast<int>(seed_)); }

  static std::map<std::string, ListedConnection> list(const Workers& workers) {
    std::map<std::string, ListedConnection> all;
    workers.list([&all](const WorkersConnection& is) {
      std::visit(
          [&](const auto& key) {
            const std::string bytes(reinterpret_cast<const char*>(&key), sizeof(key));
            EXPECT_TRUE(all.emplace(bytes, is.connection).second) << "a connection is listed twice";
          },
          is.connection.key);
    });
    return all;
  }

  /// Returns true if the connection ends when its backend is removed, so that the connection's next
  /// packet goes to another backend.
  static bool moves(const ListedConnection& connection) {
    const auto protocol = std::visit([](const auto& key) { return key.protocol; }, connection.key);
    return !is_answered(connection.state) ||
           (protocol != kProtocolTcp && protocol != kProtocolSctp);
  }

  /// Gives the bytes to `taking_over` in pieces of random sizes.
  void take(TakingOver& taking_over, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t size = std::min<std::size_t>(1 + random_() % 300, bytes.size());
      const auto ok = taking_over.take(bytes.first(size));
      ASSERT_TRUE(ok.has_value()) << ok.error().message;
      bytes = bytes.subspan(size);
    }
  }

  /// Sends `to` the connections of `from` that have changed since the last call. `serves`: the
  /// workers of `from` run, so each gets the call of `carry` through its mailbox.
  void tell(Workers& from, std::vector<Carrying>& carrying, TakingOver& to, bool serves) {
    std::vector<std::byte> bytes;
    const auto append = [&bytes](std::span<const std::byte> more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
      return true;
    };
    give_parts(from.line(0).carried_parts(), append);
    for (unsigned n = 0; n < from.count(); ++n) {
      for (LineCursor at; at.at != LineCursor::At::end;) {
        const auto carry = [&] { at = from.line(n).carry(at, 1 + random_() % 4096, carrying[n]); };
        if (serves) {
          ASSERT_TRUE(from.ask(n, carry));
        } else {
          carry();
        }
        give(n, carrying[n], append);
      }
    }
    give_end(append);
    take(to, bytes);
    ASSERT_TRUE(to.end().has_value());
  }

  /// Returns true once each worker has received as many packets as the plan has.
  static bool have_seen(const Workers& workers, const TrafficPlan& plan) {
    for (unsigned n = 0; n < workers.count(); ++n) {
      if (workers.line(n).counters().in.value() < plan.packets) return false;
    }
    return true;
  }

  /// Serves packets of connections whose beginning the capture lacks, until each worker has served
  /// each of its connections at least once.
  static void serve_some(Workers& workers, unsigned seed) {
    const TrafficPlan plan{
        .connections = kConnections, .packets = 20'000, .seed = seed, .midstream = true};
    serve(workers, plan,
          [&] { EXPECT_TRUE(comes_true([&] { return have_seen(workers, plan); })); });
  }

  unsigned seed_ = drawn_seed();
  std::mt19937 random_;
};

TEST_P(HandoverTest, TheSameConnectionsInTheEnd) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const auto& [one, other] = GetParam();
  Workers from = one.make();
  Workers to = other.make();
  TakingOver taking_over(to, other.owners());
  std::vector<Carrying> carrying(from.count());
  const auto end_some = [this](const ListedConnection&) {
    return random_() % 16 == 0 ? Visit::end : Visit::leave;
  };
  serve(from, {.connections = kConnections, .packets = 20'000, .seed = seed_ % 1000}, [&] {
    for (int round = 0; round < 4 && !HasFailure(); ++round) {
      tell(from, carrying, taking_over, true);
      for (LineCursor at; at.at != LineCursor::At::end;)
        ASSERT_TRUE(from.ask(0, [&] { at = from.line(0).visit(at, end_some); }));
    }
  });
  tell(from, carrying, taking_over, false);
  EXPECT_EQ(taking_over.left_behind(), 0U);

  const auto theirs = list(from);
  const auto ours = list(to);
  EXPECT_GT(theirs.size(), kConnections / 2);
  ASSERT_EQ(ours.size(), theirs.size());
  EXPECT_EQ(taking_over.connections(), theirs.size());
  EXPECT_EQ(to.counters().taken_over.value(), theirs.size());
  std::size_t with_reply = 0;
  for (const auto& [key, is] : theirs) {
    const auto at = ours.find(key);
    ASSERT_NE(at, ours.end());
    EXPECT_EQ(at->second.translated, is.translated);
    EXPECT_EQ(at->second.has_reply, is.has_reply);
    EXPECT_EQ(at->second.state, is.state);
    EXPECT_LE(at->second.idle_ms, is.idle_ms);
    EXPECT_GE(at->second.expires_ms, is.expires_ms);
    with_reply += is.has_reply ? 1 : 0;
  }
  EXPECT_GT(with_reply, 0U);
  EXPECT_LT(with_reply, theirs.size());
  for (unsigned n = 0; n < to.count(); ++n) {
    const auto whole = to.line(n).check_invariants();
    EXPECT_TRUE(whole.has_value()) << whole.error().message;
  }
  // Old and new workers also have the same counts for limits.
  const auto counted = [](const Workers& workers) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    for (const auto& service : services_of(workers)) {
      std::uint64_t live = 0;
      for (const auto& backend : service.backends) live += backend.live;
      all.emplace_back(service.established, live);
    }
    return all;
  };
  EXPECT_EQ(counted(to), counted(from));
  if (from.sources() != nullptr && to.sources() != nullptr) {
    EXPECT_EQ(to.sources()->total(), from.sources()->total());
  }
}

/// The new workers go on with the same traffic, and open no connection anew.
TEST_P(HandoverTest, TheyGoOn) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const auto& [one, other] = GetParam();
  Workers from = one.make();
  serve_some(from, seed_ % 1000);
  // The number of workers stays the same, so each worker gets the packets of its connections.
  Scheme same = other;
  same.workers = from.count();
  Workers to = same.make();
  TakingOver taking_over(to, same.owners());
  std::vector<Carrying> carrying(from.count());
  tell(from, carrying, taking_over, false);
  EXPECT_EQ(taking_over.left_behind(), 0U);
  serve_some(to, seed_ % 1000);
  EXPECT_EQ(to.counters().opened.value(), 0U);
  EXPECT_EQ(to.counters().refused.value(), from.counters().refused.value());
  EXPECT_EQ(list(to).size(), list(from).size());
}

TEST_P(HandoverTest, WhoseServiceIsGoneDrains) {
  const auto& [one, other] = GetParam();
  Workers from = one.make();
  serve_some(from, 7);
  Services own = services();
  own.v4.erase(own.v4.begin());
  own.v6.clear();
  own.v4.front().backends.erase(own.v4.front().backends.begin());
  BalanceOffer offer;
  offer.services = services();
  Workers to = other.make(with_those_of(offer, own));
  TakingOver taking_over(to, other.owners());
  std::vector<Carrying> carrying(from.count());
  tell(from, carrying, taking_over, false);
  EXPECT_EQ(taking_over.left_behind(), 0U);
  ASSERT_TRUE(prepare(to, own).has_value());
  const auto ours = list(to);
  for (const auto& [key, connection] : list(from))
    EXPECT_TRUE(ours.contains(key) || moves(connection)) << to_string(connection.state);
  std::uint64_t draining = 0;
  for (const auto& service : services_of(to)) {
    for (const auto& backend : service.backends) draining += backend.draining ? backend.live : 0;
  }
  EXPECT_GT(draining, 0U);
}

/// If the new process has not configured a backend, it treats the backend's connections as a reload
/// would: connections without a reply end, and so do those of protocols other than TCP and SCTP.
TEST_P(HandoverTest, WhatNobodyAnsweredLeavesABackendThatIsGone) {
  const auto& [one, other] = GetParam();
  Workers from = one.make();
  serve(from, {.connections = kConnections, .packets = 20'000, .seed = 7}, [] {});
  const AddressV4 gone = services().v4.front().backends.front().address;
  Services own = services();
  for (auto& service : own.v4) service.backends.erase(service.backends.begin());
  BalanceOffer offer;
  offer.services = services();
  Workers to = other.make(with_those_of(offer, own));
  TakingOver taking_over(to, other.owners());
  std::vector<Carrying> carrying(from.count());
  tell(from, carrying, taking_over, false);
  const auto before = list(to);
  ASSERT_TRUE(prepare(to, own).has_value());
  const auto after = list(to);
  const auto leaves = [&](const ListedConnection& connection) {
    const auto* leaving = std::get_if<KeyV4>(&connection.translated);
    return leaving != nullptr && leaving->destination == gone && moves(connection);
  };
  std::size_t left = 0;
  for (const auto& [key, connection] : before) {
    left += leaves(connection) ? 1 : 0;
    EXPECT_EQ(after.contains(key), !leaves(connection)) << to_string(connection.state);
  }
  EXPECT_GT(left, 0U);
  EXPECT_EQ(to.counters().closed[static_cast<std::size_t>(Ending::moved)].value(), left);
  for (unsigned n = 0; n < to.count(); ++n) {
    const auto whole = to.line(n).check_invariants();
    EXPECT_TRUE(whole.has_value()) << whole.error().message;
  }
}

TEST_P(HandoverTest, WhatHasNoPlaceIsLeftBehind) {
  const auto& [one, other] = GetParam();
  Workers from = one.make();
  serve_some(from, 7);
  Services none = services();
  none.v4.clear();
  Workers to = other.make(none);
  TakingOver taking_over(to, other.owners());
  std::vector<Carrying> carrying(from.count());
  tell(from, carrying, taking_over, false);
  EXPECT_EQ(taking_over.connections(), from.report_v6().live);
  EXPECT_EQ(taking_over.left_behind(), from.report_v4().live);
}

/// A connection whose packets a function translates is left behind if the new process lacks that
/// function: its packets would go on untranslated.
TEST_P(HandoverTest, WhatAFunctionServedThatIsNotHereIsLeftBehind) {
  const auto& [one, other] = GetParam();
  Services some = services();
  some.v4.erase(some.v4.begin());
  some.v6.clear();
  const auto forwards = forward_kind().defaults();
  const auto both = chained({forwards, settings_of(some)});
  Workers from = one.make_with(both);
  serve_some(from, 7);
  const auto theirs = list(from);
  const auto served = static_cast<std::size_t>(std::ranges::count_if(
      theirs, [](const auto& of) { return of.second.translated != of.second.key; }));
  EXPECT_GT(served, 0U);
  Workers to = other.make_with(forwards);
  TakingOver taking_over(to, other.owners());
  std::vector<Carrying> carrying(from.count());
  tell(from, carrying, taking_over, false);
  EXPECT_EQ(taking_over.left_behind(), served);
  EXPECT_EQ(list(to).size(), theirs.size() - served);
  // A process that has more functions takes over all connections.
  Workers back = one.make_with(both);
  TakingOver taking_back(back, one.owners());
  std::vector<Carrying> carrying_back(to.count());
  tell(to, carrying_back, taking_back, false);
  EXPECT_EQ(taking_back.left_behind(), 0U);
  EXPECT_EQ(list(back).size(), theirs.size() - served);
}

TEST(TakingOverTest, ABackendThatDrainsBesideItselfIsAddedOnce) {
  BalanceOffer offer;
  offer.services = services();
  auto& backends = offer.services.v4.back().backends;
  backends.push_back(backends.front());
  Services own = services();
  own.v4.pop_back();
  const Services all = with_those_of(offer, own);
  EXPECT_EQ(all.v4.back().backends.size(), backends.size() - 1);
  EXPECT_EQ(all.v4.back().backends.front().weight, 0U);
  EXPECT_EQ(services_of(Scheme({"race", "sharded", 1}).make(all)).size(),
            services().v4.size() + services().v6.size());
}

/// The old process's function sends JSON at the beginning and at the end of a take-over. The new
/// process makes its function from this JSON.
TEST(TakingOverTest, WhatAFunctionTellsMakesTheNextOne) {
  const FunctionKind& kind = balance_kind();
  const OnEachWorker on_each = [](const auto& step) {
    step(0);
    return true;
  };
  auto from = *kind.deploy(settings_of(services()), {});
  from->make(0);
  const std::string backend = to_string(services().v4.front().backends.front().address);
  const std::vector<std::pair<std::string, std::string>> given{{"backend", backend},
                                                               {"drained", "true"}};
  ASSERT_TRUE(from->command("/drain", given, on_each).has_value());
  Json told = Json::object();
  ASSERT_TRUE(from->tell_first(told, on_each));

  Services own = services();
  own.v6.clear();
  const auto other = settings_of(own);
  auto to = *kind.deploy(other, {.offered = &told});
  to->make(0);
  const auto statistics = [&to] { return dynamic_cast<BalanceDeployment&>(*to).services(); };
  EXPECT_EQ(statistics().size(), services().v4.size() + services().v6.size());
  Json last = Json::object();
  from->tell_last(last, on_each);
  to->take_last(&last);
  to->take_last(nullptr);
  ASSERT_TRUE(to->update(other, {}, on_each).has_value());
  EXPECT_EQ(statistics().size(), services().v4.size());
  EXPECT_EQ(statistics().front().backends.front().weight, 0U) << "the backend must stay drained";
  EXPECT_TRUE(to->check_invariants().has_value());

  told["services"][0]["prefix"] = 1000;
  const auto refused = kind.deploy(other, {.offered = &told});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, Error::Kind::failed);
}

TEST(TakingOverTest, NonsenseIsRefused) {
  const Scheme scheme{"race", "sharded", 1};
  const auto refuses = [&](const auto& block, bool in_the_end, std::span<const CarriedPart> parts) {
    Workers to = scheme.make();
    TakingOver taking_over(to, scheme.owners());
    std::vector<std::byte> bytes;
    const auto append = [&bytes](std::span<const std::byte> more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
      return true;
    };
    if (!parts.empty()) give_parts(parts, append);
    append(std::as_bytes(std::span(&block, 1)));
    const auto ok = taking_over.take(bytes);
    return in_the_end ? ok.has_value() && !taking_over.end().has_value() : !ok.has_value();
  };
  EXPECT_TRUE(refuses(CarriedBlock{.family = 5, .worker = 0, .count = 1}, false, {}));
  EXPECT_TRUE(refuses(CarriedBlock{.family = 4, .worker = 1000, .count = 1}, false, {}));
  EXPECT_TRUE(refuses(CarriedBlock{.family = 4, .worker = 0, .count = 0}, false, {}));
  const auto own = scheme.make().line(0).carried_parts();
  const CarriedBlock one{.family = 4, .worker = 0, .count = 1};
  EXPECT_TRUE(refuses(one, true, own)) << "a record is cut off";
  EXPECT_TRUE(refuses(one, false, {})) << "a block before the parts of its records";
  EXPECT_TRUE(refuses(CarriedBlock{.family = kCarriedRefusal, .worker = 0, .count = 0}, false, {}));
  EXPECT_TRUE(
      refuses(CarriedBlock{.family = kCarriedRefusal, .worker = 0, .count = 5000}, false, {}));
  struct {
    CarriedBlock block{.family = 4, .worker = 0, .count = 1};
    CarriedConnection<KeyV4> one{.is_there = 1};
    std::array<std::byte, 64> images{};
  } odd;
  odd.one.life.standing = Standing(ConnectionState{30});
  EXPECT_TRUE(refuses(odd, false, own));
  odd.one.life = {.idle_ms = 0x80000000};
  EXPECT_TRUE(refuses(odd, false, own)) << "idle for longer than ticks can express";
  odd.one.life = {.standing = Standing(ConnectionState::udp)};
  odd.one.key.protocol = kProtocolTcp;
  EXPECT_TRUE(refuses(odd, false, own)) << "a state of UDP for a TCP connection";
}

// A function reads its part only in the version that it writes itself. A part of an unknown
// function is no error.
TEST(TakingOverTest, PartsAreKnownByNameAndVersion) {
  const Scheme scheme{"race", "sharded", 1};
  const auto take = [&](const std::vector<CarriedPart>& parts,
                        const std::vector<CarriedPart>& again = {}) {
    Workers to = scheme.make();
    TakingOver taking_over(to, scheme.owners());
    std::vector<std::byte> bytes;
    const auto append = [&bytes](std::span<const std::byte> more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
      return true;
    };
    give_parts(parts, append);
    if (!again.empty()) give_parts(again, append);
    const auto ok = taking_over.take(bytes);
    return ok ? std::string() : ok.error().message;
  };
  auto parts = scheme.make().line(0).carried_parts();
  ASSERT_EQ(parts.size(), 4U) << "one of each family, and its head";
  EXPECT_EQ(parts[0].name(), "balance");
  EXPECT_EQ(take(parts), "");
  EXPECT_EQ(take(parts, parts), "");
  EXPECT_NE(take(parts, {parts[0]}), "") << "the parts must stay as they were sent first";
  append(parts, 4, std::array{Part{.name = "tomorrow's", .version = 7, .image_bytes = 40}});
  EXPECT_EQ(take(parts), "");
  parts[0].version = 9;
  EXPECT_EQ(take(parts),
            "the running millrace sends the state of its function balance in version "
            "9, and this one reads version 1: end the running one, and start this one without "
            "--take-over");
  parts[0].version = 1;
  parts[0].function.fill('x');
  EXPECT_EQ(take(parts), "") << "a name without a 0 at its end";
  parts = scheme.make().line(0).carried_parts();
  parts[0].image_bytes += 2;
  EXPECT_EQ(take(parts), "") << "an image that has grown";
  EXPECT_NE(take({}), "") << "no parts";
  parts.assign(65, parts[1]);
  EXPECT_NE(take(parts), "");
  parts.assign(3, CarriedPart{.family = 4, .image_bytes = 4000});
  EXPECT_NE(take(parts), "") << "images of 12,000 bytes";
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, HandoverTest,
    testing::Values(Change{{"race", "sharded", 3}, {"race", "sharded", 2}},
                    Change{{"race", "sharded", 2, 50}, {"cuckoo", "sharded", 3, 50}},
                    Change{{"race", "lock-free-race", 3}, {"race", "lock-free-race", 3}},
                    Change{{"race", "mutex", 2}, {"chained", "sharded", 1}},
                    Change{{"chained", "sharded", 2}, {"race", "spinlock", 3}}),
    name_of);

}  // namespace
}  // namespace millrace
