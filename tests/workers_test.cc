// Several workers against one: the same packets out, in the same order, and the same counts.
#include "worker/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "parse/capture_bursts.h"
#include "parse/rewrite.h"
#include "port/test_files.h"
#include "shard/split.h"
#include "traffic/generate.h"
#include "worker/threads.h"

namespace millrace {
namespace {

struct Outcome {
  std::string packets;  ///< the file
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t opened = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t live = 0;
  std::uint64_t to_backends = 0;
  std::uint64_t replies = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend void PrintTo(const Outcome& o, std::ostream* to) {
    *to << o.in << " in, " << o.out << " out, " << o.opened << " opened, " << o.timed_out
        << " timed out, " << o.live << " live, " << o.to_backends << " to backends, " << o.replies
        << " replies, a file of hash " << std::hash<std::string>{}(o.packets);
  }
};

class WorkersTest : public testing::Test {
 protected:
  Outcome run(const Capture& capture, unsigned count, std::string_view spread_name = "keyed") {
    auto workers = Workers::create(count, line_, balance_);
    EXPECT_TRUE(workers.has_value()) << workers.error().message;
    const auto spread = spread_named(spread_name)->create(Secret::from_seed(2));
    const auto parts = split(capture, *spread, Indirection(512, count), count,
                             [&](Burst& burst) { workers->sides(burst); });
    auto writer = CaptureWriter::create(directory_ / "out", capture.format());
    CaptureOutput output(std::move(*writer), count);
    std::vector<ReplayPort> ports;
    std::vector<Port*> pointers;
    for (unsigned n = 0; n < count; ++n) {
      ports.push_back(*ReplayPort::create(capture, {}, &output, parts->at(n)));
    }
    for (auto& port : ports) pointers.push_back(&port);
    EXPECT_TRUE(workers->run(pointers).has_value());
    EXPECT_TRUE(output.finish().has_value());
    return outcome_of(*workers);
  }

  LineConfig line_{.capacity = 20'000,
                   .capacity_v6 = 20'000,
                   .timeouts = Timeouts::all(3'000),
                   .pages = Pages::small,
                   .secret = Secret::from_seed(1),
                   .catch_up = true};
  BalanceConfig balance_;

 private:
  Outcome outcome_of(const Workers& workers) {
    Outcome all{.packets = test::read_file(directory_ / "out")};
    for (unsigned n = 0; n < workers.count(); ++n)
      EXPECT_TRUE(workers.line(n).check_invariants().has_value());
    const WorkerCounters counters = workers.counters();
    all.in = counters.in.value();
    all.out = counters.out.value();
    all.opened = counters.opened.value();
    all.timed_out = counters.timed_out.value();
    all.live = workers.report_v4().live + workers.report_v6().live;
    for (const auto& service : workers.services()) {
      for (const auto& backend : service.backends) {
        all.to_backends += backend.packets;
        all.replies += backend.replies;
      }
    }
    return all;
  }

  test::Directory directory_;
};

TEST_F(WorkersTest, ManyDoWhatOneDoes) {
  const auto capture = generate({.connections = 4000, .packets = 40'000, .seed = 5});
  ASSERT_TRUE(capture.has_value());
  for (const char* scheduler : {"maglev", "hash"}) {
    for (auto& service : balance_.services.v4) service.scheduler = scheduler;
    for (auto& service : balance_.services.v6) service.scheduler = scheduler;
    const Outcome one = run(*capture, 1);
    EXPECT_EQ(one.in, 40'000U);
    EXPECT_GT(one.timed_out, 0U);
    EXPECT_GT(one.live, 0U);
    for (const unsigned count : {2U, 3U, 8U}) {
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
    for (unsigned i = 0; i < burst.v4.originator.size; ++i, ++n) {
      const auto& request = requests.packet(n);
      const auto& packet = at_backends.packet(n);
      EXPECT_TRUE(both.append(request.timestamp_ns, request.wire_length, request.bytes()));
      auto reply = both.append(request.timestamp_ns + 1000, packet.wire_length, packet.bytes());
      const KeyV4& key = burst.v4.originator.key[i];
      rewrite<KeyV4>(End::source, *reply, burst.length[i], burst.headers[i], key.destination,
                     key.destination_port);
      rewrite<KeyV4>(End::destination, *reply, burst.length[i], burst.headers[i], key.source,
                     key.source_port);
    }
    return {};
  }));
  return both;
}

TEST_F(WorkersTest, RepliesMeetTheirRequests) {
  const auto requests =
      generate({.profile = Profile::uniform, .connections = 2000, .packets = 8'000, .seed = 6});
  std::set<std::array<std::uint8_t, 4>> servers;
  ASSERT_TRUE(for_each_burst(*requests, [&](const Burst& burst) -> Result<void> {
    for (const KeyV4& key : burst.v4.originator.keys()) servers.insert(key.destination.bytes);
    return {};
  }));
  balance_.services = {};
  balance_.maglev_table_size = 251;
  for (const auto& server : servers) {
    ServiceSpec<AddressV4> spec{.address = {server}, .backends = {}};
    for (std::uint8_t last = 1; last < 5; ++last) spec.backends.push_back({{{10, 0, 0, last}}});
    balance_.services.v4.push_back(spec);
  }
  const test::Directory directory;
  test::write_file(directory / "to_backends", run(*requests, 1).packets);
  const Capture capture = with_replies(*requests, *Capture::load(directory / "to_backends"));
  ASSERT_EQ(capture.size(), 16'000U);
  const Outcome one = run(capture, 1);
  EXPECT_EQ(one.replies, 8'000U);
  for (const SpreadKind& kind : spreads()) {
    if (kind.by_client) {
      EXPECT_EQ(run(capture, 3, kind.name), one) << kind.name;
    } else {
      EXPECT_LT(run(capture, 3, kind.name).replies, 8'000U) << kind.name;
    }
  }
}

TEST_F(WorkersTest, AnErrorOfOneIsTheErrorOfAll) {
  line_.table = "cukoo";
  const auto workers = Workers::create(3, line_, balance_);
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
