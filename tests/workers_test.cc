// Several workers against one, each for itself, in rounds and in a pipeline: the same packets out,
// in the same order, and the same counts.
#include "worker/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "balance_workers.h"
#include "core/test_sanitizers.h"
#include "parse/capture_bursts.h"
#include "parse/rewrite.h"
#include "parse/test_packets.h"
#include "port/test_files.h"
#include "shard/split.h"
#include "traffic/generate.h"
#include "worker/rebalance.h"
#include "worker/threads.h"

namespace millrace {
namespace {

struct Outcome {
  std::string packets;  ///< the file
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t opened = 0;
  std::uint64_t ended = 0;
  std::uint64_t live = 0;
  std::uint64_t proved = 0;
  std::uint64_t to_backends = 0;
  std::uint64_t replies = 0;
  std::uint64_t related = 0;  ///< ICMP errors

  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend void PrintTo(const Outcome& o, std::ostream* to) {
    *to << o.in << " in, " << o.out << " out, " << o.opened << " opened, " << o.ended << " ended, "
        << o.live << " live, " << o.proved << " proved, " << o.to_backends << " to backends, "
        << o.replies << " replies, " << o.related << " errors, a file of hash "
        << std::hash<std::string>{}(o.packets);
  }
};

/// So much of a capture: where a sanitizer makes packets slow, a quarter.
constexpr std::uint32_t part_of(std::uint32_t all) { return kSanitized ? all / 4 : all; }

class WorkersTest : public testing::Test {
 protected:
  Outcome run(const Capture& capture, unsigned count, std::string_view spread_name = "keyed") {
    auto workers = make_workers(count, line_, balance_);
    EXPECT_TRUE(workers.has_value()) << workers.error().message;
    const Indirection indirection(512, count);
    auto entries = entries_of(capture, *spread_named(spread_name)->create(Secret::from_seed(2)),
                              indirection, workers->steering());
    auto writer = CaptureWriter::create(directory_ / "out", capture.format());
    CaptureOutput output(std::move(*writer), count);
    std::vector<ReplayPort> ports;
    std::vector<Port*> pointers;
    std::optional<Rebalance> rebalance;
    if (line_.entries_that_move > 0)
      rebalance.emplace(capture, *entries, indirection, count, loops_, 1);
    for (unsigned n = 0; n < count; ++n) {
      ports.push_back(*ReplayPort::create(
          capture, {.loops = loops_, .in_flight = Pipeline::kInFlight}, &output,
          rebalance ? rebalance->part(n) : split(*entries, indirection, count)[n]));
    }
    for (auto& port : ports) pointers.push_back(&port);
    if (rebalance) rebalance->begin(*workers, ports);
    std::optional<Pipeline> pipeline;
    if (pipeline_) {
      pipeline = *Pipeline::create(pointers);
      pointers = pipeline->ports();
    }
    const Beside beside{rebalance ? &*rebalance : nullptr, pipeline ? &*pipeline : nullptr};
    EXPECT_TRUE(workers->run(pointers, beside).has_value());
    EXPECT_TRUE(output.finish().has_value());
    if (rebalance) rebalanced_ = rebalance->report();
    if (at_rest_) at_rest_(*workers);
    return outcome_of(*workers);
  }

  LineConfig line_{.capacity = 20'000,
                   .capacity_v6 = 20'000,
                   .timeouts = Timeouts::all(3'000),
                   .pages = Pages::small,
                   .secret = Secret::from_seed(1),
                   .source_limit = {.most = 1'000'000},
                   .catch_up = true};
  BalanceConfig balance_;
  std::uint32_t loops_ = 1;
  bool pipeline_ = false;
  std::function<void(Workers&)> at_rest_;
  Rebalance::Report rebalanced_;

 private:
  Outcome outcome_of(const Workers& workers) {
    Outcome all{.packets = test::read_file(directory_ / "out")};
    for (unsigned n = 0; n < workers.count(); ++n)
      EXPECT_TRUE(workers.line(n).check_invariants().has_value());
    const WorkerCounters counters = workers.counters();
    all.in = counters.in.value();
    all.out = counters.out.value();
    all.opened = counters.opened.value();
    all.ended = counters.ended();
    all.related = counters.verdict[static_cast<std::size_t>(Verdict::related)].value();
    all.live = workers.report_v4().live + workers.report_v6().live;
    for (const auto& service : services_of(workers)) {
      all.proved += service.established;
      for (const auto& backend : service.backends) {
        all.to_backends += backend.packets;
        all.replies += backend.replies;
      }
    }
    EXPECT_EQ(workers.sources()->total(), all.proved) << "in use, and counted for sources";
    return all;
  }

  test::Directory directory_;
};

TEST_F(WorkersTest, ManyDoWhatOneDoes) {
  const auto capture =
      generate({.connections = part_of(2000), .packets = part_of(20'000), .seed = 5});
  ASSERT_TRUE(capture.has_value());
  for (const char* scheduler : {"maglev", "hash"}) {
    for (auto& service : balance_.services.v4) service.scheduler = scheduler;
    for (auto& service : balance_.services.v6) service.scheduler = scheduler;
    const Outcome one = run(*capture, 1);
    EXPECT_EQ(one.in, part_of(20'000));
    EXPECT_GT(one.ended, 0U);
    EXPECT_GT(one.live, 0U);
    for (const unsigned count : {3U, 8U}) {
      for (const SpreadKind& kind : spreads())
        EXPECT_EQ(run(*capture, count, kind.name), one) << scheduler << count << kind.name;
    }
  }
}

/// Requests, as captured, and behind each the reply of the backend that gets it.
Capture with_replies(const Capture& requests, const Capture& at_backends) {
  Capture both(requests.format());
  std::size_t n = 0;
  EXPECT_TRUE(for_each_burst(at_backends, [&](const Burst& burst) -> Result<void> {
    for (unsigned i = 0; i < burst.v4.size; ++i, ++n) {
      const auto& request = requests.packet(n);
      const auto& packet = at_backends.packet(n);
      EXPECT_TRUE(both.append(request.timestamp_ns, request.wire_length, request.bytes()));
      auto reply = both.append(request.timestamp_ns + 1000, packet.wire_length, packet.bytes());
      const KeyV4& key = burst.v4.key[i];
      rewrite(*reply, burst.headers[i], key, reversed(key));
    }
    return {};
  }));
  return both;
}

/// Host unreachable, from a router to who sent the packet, as much of it as is quoted by IPv4.
test::Bytes error_about(std::span<const std::byte> packet, const Headers& headers) {
  using test::operator+;
  const test::Bytes quote(packet.begin() + headers.l3, packet.begin() + headers.l4 + 8);
  return test::ethernet(0x0800) + test::bytes({0x45, 0}) +
         test::be(28 + static_cast<unsigned>(quote.size())) + test::zeros(4) +
         test::bytes({64, 1, 0, 0, 198, 51, 100, 1}) +
         test::Bytes(quote.begin() + 12, quote.begin() + 16) + test::bytes({3, 1, 0, 0}) +
         test::zeros(4) + quote;
}

/// The same packets, and behind each an error to its sender.
Capture with_errors(const Capture& capture) {
  Capture both(capture.format());
  std::size_t n = 0;
  EXPECT_TRUE(for_each_burst(capture, [&](const Burst& burst) -> Result<void> {
    for (unsigned i = 0; i < burst.size; ++i, ++n) {
      const auto& packet = capture.packet(n);
      const auto error = error_about(packet.bytes(), burst.headers[i]);
      EXPECT_TRUE(both.append(packet.timestamp_ns, packet.wire_length, packet.bytes()));
      EXPECT_TRUE(
          both.append(packet.timestamp_ns + 500, static_cast<std::uint32_t>(error.size()), error));
    }
    return {};
  }));
  return both;
}

/// A service for every server of the requests.
Services services_for(const Capture& requests) {
  std::set<std::array<std::uint8_t, 4>> servers;
  EXPECT_TRUE(for_each_burst(requests, [&](const Burst& burst) -> Result<void> {
    for (const KeyV4& key : burst.v4.keys()) servers.insert(key.destination.bytes);
    return {};
  }));
  Services services;
  for (const auto& server : servers) {
    ServiceSpec<AddressV4> spec{.address = {server}, .backends = {}};
    for (std::uint8_t last = 1; last < 5; ++last) spec.backends.push_back({{{10, 0, 0, last}}});
    services.v4.push_back(spec);
  }
  return services;
}

TEST_F(WorkersTest, RepliesMeetTheirRequests) {
  const auto requests = generate({.profile = Profile::uniform,
                                  .connections = part_of(2000),
                                  .packets = part_of(8'000),
                                  .seed = 6});
  balance_.services = services_for(*requests);
  balance_.maglev_table_size = 251;
  const test::Directory directory;
  test::write_file(directory / "to_backends", run(*requests, 1).packets);
  const Capture capture = with_replies(*requests, *Capture::load(directory / "to_backends"));
  ASSERT_EQ(capture.size(), part_of(16'000));
  const Outcome one = run(capture, 1);
  EXPECT_EQ(one.replies, part_of(8'000));
  for (const SpreadKind& kind : spreads()) {
    if (kind.by_client) {
      EXPECT_EQ(run(capture, 3, kind.name), one) << kind.name;
    } else {
      EXPECT_LT(run(capture, 3, kind.name).replies, part_of(8'000)) << kind.name;
    }
  }
}

// Errors go to the worker whose connection they are about, so to the backend that it has, whatever
// another worker's scheduler would have said.
TEST_F(WorkersTest, ErrorsMeetTheirConnections) {
  const auto requests = generate({.profile = Profile::uniform,
                                  .connections = part_of(2000),
                                  .packets = part_of(8'000),
                                  .seed = 6});
  balance_.services = services_for(*requests);
  for (auto& service : balance_.services.v4) service.scheduler = "hash";
  balance_.maglev_table_size = 251;
  const test::Directory directory;
  test::write_file(directory / "to_backends", run(*requests, 1).packets);
  const auto at_backends = Capture::load(directory / "to_backends");
  // Requests and what comes back; the errors that clients cause; those that millrace's own cause.
  const Capture both = with_replies(*requests, *at_backends);
  test::write_file(directory / "both", run(both, 1).packets);
  const Capture capture = with_errors(*Capture::load(directory / "both"));
  Capture all(requests->format());
  for (std::size_t i = 0; i < capture.size() / 2; ++i) {
    const auto& sent = both.packet(i);
    const auto& error = capture.packet(2 * i + 1);
    EXPECT_TRUE(all.append(sent.timestamp_ns, sent.wire_length, sent.bytes()));
    EXPECT_TRUE(all.append(error.timestamp_ns, error.wire_length, error.bytes()));
  }
  ASSERT_EQ(all.size(), part_of(32'000));
  const Outcome one = run(all, 1);
  EXPECT_EQ(one.related, part_of(16'000));
  EXPECT_EQ(one.replies, part_of(8'000));
  for (const SpreadKind& kind : spreads()) {
    if (kind.by_client) {
      EXPECT_EQ(run(all, 3, kind.name), one) << kind.name;
    }
  }
  line_.entries_that_move = 512;
  EXPECT_EQ(run(all, 2), one);
  line_.entries_that_move = 0;
  pipeline_ = true;
  EXPECT_EQ(run(all, 3), one);
  pipeline_ = false;
  line_.sharing = "lock-free-race";
  EXPECT_EQ(run(all, 3), one);
}

// Half of the packets in three connections: byte by byte what one worker does, for every table.
TEST_F(WorkersTest, ConnectionsMoveToWhoHasLess) {
  const auto capture = generate({.profile = Profile::skewed,
                                 .connections = 3000,
                                 .packets = kSanitized ? 30'000U : 100'000U,
                                 .seed = 11});
  ASSERT_TRUE(capture.has_value());
  line_.timeouts = Timeouts::all(700);
  loops_ = 2;
  const Outcome one = run(*capture, 1);
  EXPECT_GT(one.ended, 3000U);
  for (const auto& table : tables_for("sharded")) {
    // Several are made at once, under a lock within DPDK that the sanitizer does not see.
    if (kThreadSanitized && table == "cuckoo") continue;
    line_.table = table;
    for (const unsigned count : table == "race" ? std::vector{2U, 4U} : std::vector{2U}) {
      line_.entries_that_move = 512;
      EXPECT_EQ(run(*capture, count), one) << table << count;
      EXPECT_GT(rebalanced_.moved, 0U) << table << count;
      EXPECT_EQ(rebalanced_.stayed, 0U) << table << count;
      EXPECT_LT(rebalanced_.busiest, rebalanced_.busiest_unmoved) << table << count;
      if (count == 2) {
        EXPECT_LT(rebalanced_.busiest, 1.1);
      }
    }
  }
}

TEST_F(WorkersTest, BothEntriesOfAConnectionMove) {
  const auto requests =
      generate({.profile = Profile::skewed, .connections = 2000, .packets = 20'000, .seed = 15});
  balance_.services = services_for(*requests);
  balance_.maglev_table_size = 251;
  line_.timeouts = Timeouts::all(700);
  const test::Directory directory;
  test::write_file(directory / "to_backends", run(*requests, 1).packets);
  const Capture capture = with_replies(*requests, *Capture::load(directory / "to_backends"));
  const Outcome one = run(capture, 1);
  EXPECT_EQ(one.replies, 20'000U);
  EXPECT_GT(one.ended, 2000U);
  line_.entries_that_move = 512;
  for (const unsigned count : {2U, 3U}) {
    EXPECT_EQ(run(capture, count), one) << count;
    EXPECT_GT(rebalanced_.moved, 0U) << count;
  }
}

TEST_F(WorkersTest, BothFamiliesMove) {
  const auto capture = generate({.connections = 3000, .packets = 80'000, .seed = 12});
  ASSERT_TRUE(capture.has_value());
  const Outcome one = run(*capture, 1);
  line_.entries_that_move = 512;
  for (const unsigned count : {2U, 5U}) {
    EXPECT_EQ(run(*capture, count), one) << count;
    EXPECT_GT(rebalanced_.moved, 0U) << count;
  }
}

TEST_F(WorkersTest, WhatFindsNoPlaceStays) {
  const auto capture = generate({.connections = 6000, .packets = 60'000, .seed = 13});
  ASSERT_TRUE(capture.has_value());
  line_.timeouts = Timeouts::all(1'000'000);
  line_.entries_that_move = 512;
  constexpr Line::Live kAny{100'000, 100'000};
  for (const std::size_t capacity : {7'000U, 20'000U}) {
    line_.capacity = line_.capacity_v6 = capacity;
    at_rest_ = [&](Workers& workers) {
      const auto live = [&] {
        const Line::Live a = workers.line(0).live();
        const Line::Live b = workers.line(1).live();
        return std::array{a.v4, a.v6, b.v4, b.v6};
      };
      const auto before = live();
      unsigned refused = 0;
      for (unsigned entry = 0; entry < 512; ++entry) {
        for (const unsigned to : {0U, 1U})
          refused += workers.line(to).adopt(workers.line(1 - to), entry, {}) ? 0 : 1;
      }
      EXPECT_EQ(refused, 512U);  // each is somebody's
      EXPECT_EQ(live(), before);
      unsigned moved = 0;
      for (unsigned entry = 0; entry < 512; ++entry) {
        if (!workers.line(0).adopt(workers.line(1), entry, kAny)) continue;
        workers.line(1).release(entry);
        ++moved;
      }
      EXPECT_EQ(live()[0] + live()[2], before[0] + before[2]);
      EXPECT_EQ(live()[1] + live()[3], before[1] + before[3]);
      if (capacity == 7'000) {
        EXPECT_GT(live()[2], 0U);  // one worker's table is too small for all
        EXPECT_LT(moved, 512U);
      } else {
        EXPECT_EQ(live()[2], 0U);
        EXPECT_EQ(moved, 512U);
      }
    };
    const Outcome two = run(*capture, 2);
    EXPECT_EQ(two.opened, two.live + two.ended);
  }
}

TEST_F(WorkersTest, SharedTablesMoveNothing) {
  const auto capture = generate({.profile = Profile::skewed,
                                 .connections = part_of(6000),
                                 .packets = part_of(100'000),
                                 .seed = 14});
  ASSERT_TRUE(capture.has_value());
  line_.timeouts = Timeouts::all(1'000'000);
  const Outcome one = run(*capture, 1);
  line_.entries_that_move = 512;
  line_.sharing = "lock-free-race";
  EXPECT_EQ(run(*capture, 2), one);
  EXPECT_GT(rebalanced_.moved, 0U);
}

/// Rounds that one worker cannot follow.
class Failing final : public Rounds {
 public:
  Failing(Rounds& rounds, unsigned worker, int after)
      : rounds_(&rounds), worker_(worker), left_(after) {}
  bool next(unsigned worker) override {
    if (worker == worker_ && left_-- == 0) throw std::bad_alloc();
    return rounds_->next(worker);
  }
  void leave(unsigned worker) noexcept override { rounds_->leave(worker); }

 private:
  Rounds* rounds_;
  unsigned worker_;
  int left_;
};

TEST_F(WorkersTest, NobodyWaitsForOneThatFailed) {
  const auto capture =
      generate({.profile = Profile::skewed, .connections = 2000, .packets = 200'000, .seed = 16});
  ASSERT_TRUE(capture.has_value());
  line_.entries_that_move = 512;
  constexpr unsigned kWorkers = 3;
  for (const int after : {0, 1, 5}) {
    auto workers = make_workers(kWorkers, line_, balance_);
    const Indirection indirection(512, kWorkers);
    auto entries = entries_of(*capture, *spread_named("keyed")->create(Secret::from_seed(2)),
                              indirection, workers->steering());
    const test::Directory directory;
    auto writer = CaptureWriter::create(directory / "out", capture->format());
    CaptureOutput output(std::move(*writer), kWorkers);
    Rebalance rebalance(*capture, *entries, indirection, kWorkers, 1, 1);
    std::vector<ReplayPort> ports;
    for (unsigned n = 0; n < kWorkers; ++n)
      ports.push_back(*ReplayPort::create(*capture, {}, &output, rebalance.part(n)));
    std::vector<Port*> pointers;
    for (auto& port : ports) pointers.push_back(&port);
    rebalance.begin(*workers, ports);
    Failing failing(rebalance, 1, after);
    const auto ran = workers->run(pointers, {.rounds = &failing});
    ASSERT_FALSE(ran.has_value());
    EXPECT_NE(ran.error().message.find("memory"), std::string::npos);
    EXPECT_LT(workers->counters().in.value(), capture->size());
  }
}

TEST_F(WorkersTest, APipelineDoesWhatWorkersAloneDo) {
  const auto capture =
      generate({.connections = part_of(4000), .packets = part_of(40'000), .seed = 5});
  ASSERT_TRUE(capture.has_value());
  const Outcome one = run(*capture, 1);
  pipeline_ = true;
  for (const unsigned count : {1U, 2U, 5U}) EXPECT_EQ(run(*capture, count), one) << count;
  line_.sharing = "lock-free-race";
  EXPECT_EQ(run(*capture, 3), one);
}

TEST_F(WorkersTest, AnErrorOfOneIsTheErrorOfAll) {
  line_.table = "cukoo";
  const auto workers = make_workers(3, line_, balance_);
  ASSERT_FALSE(workers.has_value());
  EXPECT_EQ(workers.error().kind, Error::Kind::usage);
}

TEST(CapacityOfOne, TogetherTheyKeepThePromise) {
  EXPECT_EQ(capacity_of_one(1'000'000, 1, 512), 1'000'000U);
  EXPECT_EQ(capacity_of_one(1, 4, 512), 1U);
  constexpr std::size_t kConnections = 200'000;
  std::mt19937 random(9);
  std::vector<std::uint32_t> hashes(kConnections);
  for (auto& hash : hashes) hash = static_cast<std::uint32_t>(random());
  for (const unsigned entries : {128U, 512U}) {
    for (const unsigned workers : {2U, 3U, 5U, 7U, 50U, 100U, 128U}) {
      const Indirection indirection(entries, workers);
      std::vector<std::size_t> count(workers);
      for (const auto hash : hashes) ++count[indirection.worker_of(indirection.entry_of(hash))];
      EXPECT_LE(std::ranges::max(count), capacity_of_one(kConnections, workers, entries))
          << workers << " workers, " << entries << " entries";
    }
  }
}

TEST(OnThreads, EachHasAThreadOfItsOwn) {
  std::array<std::thread::id, 5> ids;
  ASSERT_TRUE(on_threads(5, [&](unsigned n) { ids[n] = std::this_thread::get_id(); }).has_value());
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 5U);
  EXPECT_EQ(std::ranges::count(ids, std::this_thread::get_id()), 0);
  EXPECT_GE(processors(), 1U);
}

}  // namespace
}  // namespace millrace
