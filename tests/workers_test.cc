// Tests several workers. Together the workers must send the same packets as one worker alone, in
// the same order, with the same counts; if a worker fails, the run ends with an error.
#include "worker/workers.h"
#include "core/processors.h"

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
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "core/test_sanitizers.h"
#include "parse/capture_bursts.h"
#include "parse/rewrite.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"
#include "port/test_files.h"
#include "shard/split.h"
#include "traffic/generate.h"
#include "worker/threads.h"

namespace millrace {
namespace {

struct Outcome {
  std::string packets;  ///< bytes of the written capture
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t opened = 0;
  std::uint64_t ended = 0;
  std::uint64_t live = 0;
  std::uint64_t proved = 0;
  std::uint64_t to_backends = 0;
  std::uint64_t replies = 0;
  std::uint64_t related = 0;  ///< ICMP errors that were sent on

  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend void PrintTo(const Outcome& o, std::ostream* to) {
    *to << o.in << " in, " << o.out << " out, " << o.opened << " opened, " << o.ended << " ended, "
        << o.live << " live, " << o.proved << " proved, " << o.to_backends << " to backends, "
        << o.replies << " replies, " << o.related << " errors, a file of hash "
        << std::hash<std::string>{}(o.packets);
  }
};

/// Returns the size of a capture for a test: a quarter of `all` under a sanitizer, which slows
/// down every packet.
constexpr std::uint32_t part_of(std::uint32_t all) { return kSanitized ? all / 4 : all; }

class WorkersTest : public testing::Test {
 protected:
  Outcome run(const Capture& capture, unsigned count, std::string_view spread_name = "keyed") {
    auto workers = make_workers(count, line_, balance_);
    EXPECT_TRUE(workers.has_value()) << workers.error().message;
    const Indirection indirection(512, count);
    auto entries = shards_of(capture, *spread_named(spread_name)->create(Secret::from_seed(2)),
                             indirection, workers->steering());
    auto writer = CaptureWriter::create(directory_ / "out", capture.format());
    CaptureOutput output(std::move(*writer), count);
    std::vector<ReplayPort> ports;
    for (CapturePart& part : split(*entries, indirection, count)) {
      ports.push_back(*ReplayPort::create(capture, {.loops = loops_}, &output, std::move(part)));
    }
    std::vector<Port*> pointers;
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
                   .source_limit = {.most = 1'000'000},
                   .catch_up = true};
  BalanceConfig balance_;
  std::uint32_t loops_ = 1;

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
    EXPECT_EQ(workers.sources()->total(), all.proved) << "counts of sources and of services differ";
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

TEST_F(WorkersTest, TwoDoWhatOneDoesWithEveryTable) {
  const auto capture =
      generate({.connections = part_of(3000), .packets = part_of(40'000), .seed = 11});
  ASSERT_TRUE(capture.has_value());
  line_.timeouts = Timeouts::all(700);
  loops_ = 2;
  const Outcome one = run(*capture, 1);
  EXPECT_GT(one.ended, part_of(3000));
  for (const auto& table : tables_for("sharded")) {
    // The thread sanitizer does not see the lock of DPDK under which several `cuckoo` tables are
    // made.
    if (kThreadSanitized && table == "cuckoo") continue;
    line_.table = table;
    EXPECT_EQ(run(*capture, 2), one) << table;
  }
}

/// Returns the requests as captured, each followed by the reply of the backend that gets the
/// request.
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

/// Returns an ICMP error, host unreachable, from a router to the sender of `packet`. It quotes the
/// IP header and 8 bytes of `packet`.
test::Bytes error_about(std::span<const std::byte> packet, const Headers& headers) {
  using test::operator+;
  const test::Bytes quote(packet.begin() + headers.l3, packet.begin() + headers.l4 + 8);
  test::Bytes ip = test::bytes({0x45, 0}) + test::be(28 + static_cast<unsigned>(quote.size())) +
                   test::zeros(4) + test::bytes({64, 1, 0, 0, 198, 51, 100, 1}) +
                   test::Bytes(quote.begin() + 12, quote.begin() + 16) + test::bytes({3, 1, 0, 0}) +
                   test::zeros(4) + quote;
  test::make_right(ip, {4, 20, 1});
  return test::ethernet(0x0800) + ip;
}

/// Returns the packets, each followed by an ICMP error about that packet to the packet's sender.
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

/// Returns a service for every server of the requests.
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

// An ICMP error goes to the worker that has the connection (to any worker if workers share tables),
// and so to the connection's client or backend, even if another worker's scheduler would choose
// another backend.
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
  // `all` has requests and replies, each followed by an error about what millrace sent for it.
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
  line_.sharing = "lock-free-race";
  EXPECT_EQ(run(all, 3), one);
}

/// A port that throws std::bad_alloc after `after` bursts.
class Failing final : public Port {
 public:
  Failing(Port& port, int after) : port_(&port), left_(after) {}
  LinkType link_type() const override { return port_->link_type(); }
  bool receive(Burst& burst) override {
    if (left_-- == 0) throw std::bad_alloc();
    return port_->receive(burst);
  }
  void send(const Burst& burst, std::uint64_t forward) override { port_->send(burst, forward); }
  void finish() override { port_->finish(); }

 private:
  Port* port_;
  int left_;
};

TEST_F(WorkersTest, NobodyWaitsForOneThatFailed) {
  const auto capture = generate({.connections = 2000, .packets = 200'000, .seed = 16});
  ASSERT_TRUE(capture.has_value());
  constexpr unsigned kWorkers = 3;
  const Indirection indirection(512, kWorkers);
  for (const int after : {0, 1, 100}) {
    auto workers = make_workers(kWorkers, line_, balance_);
    auto entries = shards_of(*capture, *spread_named("keyed")->create(Secret::from_seed(2)),
                             indirection, workers->steering());
    const test::Directory directory;
    auto writer = CaptureWriter::create(directory / "out", capture->format());
    CaptureOutput output(std::move(*writer), kWorkers);
    std::vector<ReplayPort> ports;
    for (CapturePart& part : split(*entries, indirection, kWorkers))
      ports.push_back(*ReplayPort::create(*capture, {}, &output, std::move(part)));
    Failing failing(ports[1], after);
    const std::array<Port*, kWorkers> pointers{&ports[0], &failing, &ports[2]};
    const auto ran = workers->run(pointers);
    ASSERT_FALSE(ran.has_value());
    EXPECT_NE(ran.error().message.find("memory"), std::string::npos);
    EXPECT_LT(workers->counters().in.value(), capture->size());
  }
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
      for (const auto hash : hashes) ++count[indirection.worker_of(indirection.shard_of(hash))];
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
