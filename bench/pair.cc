#include "bench/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "bench/clock.h"
#include "bench/nat.h"
#include "bench/nat_port.h"
#include "config/config.h"
#include "conntrack/schemes.h"
#include "function/kind.h"
#include "line/line.h"
#include "port/ring.h"
#include "shard/owners.h"
#include "shard/spread.h"
#include "worker/workers_copies.h"

namespace millrace::bench {
namespace {

constexpr unsigned kShards = 512;
constexpr std::chrono::seconds kPatience{120};

/// A way of datagrams from one server to the other. A datagram that finds no room is lost.
class Channel {
 public:
  static Result<std::unique_ptr<Channel>> create() {
    auto full = PointerRing::create(kRoom);
    auto free = PointerRing::create(kRoom);
    if (!full) return std::unexpected(full.error());
    if (!free) return std::unexpected(free.error());
    std::unique_ptr<Channel> made(new Channel(std::move(*full), std::move(*free)));
    for (Datagram& one : made->datagrams_) {
      void* const pointer = &one;
      made->free_.push({&pointer, 1});
    }
    return made;
  }
  void send(std::span<const std::byte> datagram) {
    void* pointer = nullptr;
    if (free_.pop({&pointer, 1}) == 0) return;
    auto& one = *static_cast<Datagram*>(pointer);
    one.bytes = datagram.size();
    std::memcpy(one.data.data(), datagram.data(), datagram.size());
    full_.push({&pointer, 1});
    sent_ += datagram.size();
  }
  bool is_empty() const { return full_.is_empty(); }
  /// Calls `take(datagram)` for what has come, `most` at most.
  template <class Take>
  void receive(unsigned most, Take&& take) {
    void* pointer = nullptr;
    for (; most > 0 && full_.pop({&pointer, 1}) == 1; --most) {
      const auto& one = *static_cast<const Datagram*>(pointer);
      take(std::span(one.data).first(one.bytes));
      free_.push({&pointer, 1});
    }
  }
  /// Returns how many bytes were sent.
  std::uint64_t sent() const { return sent_; }

 private:
  static constexpr unsigned kRoom = 4095;
  struct Datagram {
    std::size_t bytes = 0;
    std::array<std::byte, WorkersCopies::kMostDatagram> data;
  };
  Channel(PointerRing full, PointerRing free)
      : full_(std::move(full)), free_(std::move(free)), datagrams_(kRoom) {}

  PointerRing full_;
  PointerRing free_;
  std::vector<Datagram> datagrams_;
  std::uint64_t sent_ = 0;
};

/// One server: NAT on one worker.
class Server final : public WorkersCopies::Way, private Line::Between {
 public:
  /// `to`, `from`: the ways to the other server and back; null: there is none.
  static Result<std::unique_ptr<Server>> create(const PairOptions& options, const CycleClock& clock,
                                                unsigned number, Channel* to, Channel* from) {
    std::unique_ptr<Server> made(new Server(clock));
    // Room for twice as many customers: each server gives half of the blocks.
    const auto config = parse_config(
        nat_configuration({.connections = 2 * options.sessions, .users = 2 * options.customers}),
        "pair", {TableSchemes::names(), SharingSchemes::names(), AgeingSchemes::names()});
    if (!config) return std::unexpected(config.error());
    const bool is_copied = to != nullptr;
    FunctionRun run;
    run.is_live = true;
    if (is_copied) run.share = {number - 1, 2};
    auto deployment = config->function->kind().deploy(config->function, run);
    if (!deployment) return std::unexpected(deployment.error());
    made->deployment_ = std::move(*deployment);
    auto line = make_line({.capacity = options.sessions,
                           .capacity_v6 = 1,
                           .timeouts = config->ageing.timeout_s.timeouts(),
                           .pages = options.pages,
                           .secret = Secret::from_seed(options.seed),
                           .shards_that_move = is_copied ? kShards : 0,
                           .copies = is_copied},
                          made->deployment_->make(0));
    if (!line) return std::unexpected(line.error());
    made->line_ = std::move(*line);
    if (!is_copied) return made;
    made->to_ = to;
    made->from_ = from;
    const ClusterKey key{};
    auto secret = Copies::spread_secret(key);
    if (!secret) return std::unexpected(secret.error());
    made->owners_ = std::make_shared<Owners>(spread_named("keyed")->create(*secret),
                                             Indirection(kShards, 1), 1);
    made->copies_ = std::make_unique<Copies>(
        Copies::Settings{.number = number, .key = key, .is_active = number == 1}, 1, made->owners_);
    made->workers_ = std::make_unique<WorkersCopies>(*made->copies_, 0, *made->line_, *made);
    made->line_->add_between(*made);
    return made;
  }

  bool send_to(const AnyKey&, std::span<const std::byte> datagram) override {
    to_->send(datagram);
    return true;
  }
  void release(const Outgoing&) override {}  // no packet waits for the other server
  bool take_hop(std::span<const std::byte>, unsigned, Zone) override { return false; }

  Line& line() { return *line_; }
  const Owners* owners() const { return owners_.get(); }
  Copies& copies() { return *copies_; }
  bool may_give() const { return deployment_->may_give(); }

  /// The other server, which gets a turn every 5 ms; null: none.
  void set_other(Server* other) { other_ = other; }
  /// Returns the nanoseconds that the other server's turns have taken since the last call.
  double take_ns_of_other() { return std::exchange(ns_of_other_, 0); }

 private:
  explicit Server(const CycleClock& clock) : clock_(clock) {}
  void between_bursts(Burst& next, Burst& after) override {
    constexpr unsigned kAtOnce = 8;
    from_->receive(kAtOnce, [&](std::span<const std::byte> datagram) {
      workers_->take(datagram, false, after.now);
    });
    workers_->between_bursts(next, after);
    constexpr std::int32_t kTurn = 5;  // ms: the other's turns displace what is in the caches
    if (other_ == nullptr || after.now - last_ < kTurn) return;
    last_ = after.now;
    const std::uint64_t start = clock_.begin();
    other_->take_turn();
    ns_of_other_ += clock_.ns_since(start);
  }
  /// Serves without packets until nothing is left to receive.
  void take_turn() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    after_->now = Tick::from_ms(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()));
    do {
      between_bursts(*next_, *after_);
    } while (!from_->is_empty());
  }

  std::unique_ptr<FunctionDeployment> deployment_;
  std::unique_ptr<Line> line_;
  Channel* to_ = nullptr;
  Channel* from_ = nullptr;
  std::shared_ptr<Owners> owners_;
  std::unique_ptr<Copies> copies_;
  std::unique_ptr<WorkersCopies> workers_;
  const CycleClock& clock_;
  Server* other_ = nullptr;
  double ns_of_other_ = 0;
  Tick last_{};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Burst> next_ = std::make_unique<Burst>();
  std::unique_ptr<Burst> after_ = std::make_unique<Burst>();
};

struct Samples {
  std::vector<double> begun;
  std::vector<double> established;
  std::vector<double> copying_s;
  std::vector<double> while_copying;
  double bytes_a_session = 0;
  double copying_bytes = 0;
};

class Trial {
 public:
  static Result<std::unique_ptr<Trial>> create(const PairOptions& options, bool is_copied,
                                               const CycleClock& clock) {
    std::unique_ptr<Trial> trial(new Trial(options, is_copied, clock));
    if (is_copied) {
      for (auto* const channel : {&trial->there_, &trial->back_}) {
        auto made = Channel::create();
        if (!made) return std::unexpected(made.error());
        *channel = std::move(*made);
      }
    }
    auto server = Server::create(options, clock, 1, trial->there_.get(), trial->back_.get());
    if (!server) return std::unexpected(server.error());
    trial->server_ = std::move(*server);
    if (is_copied) {
      trial->port_.number_shards_by(*trial->server_->owners());
      if (auto ok = trial->meet(); !ok) return std::unexpected(ok.error());
    }
    return trial;
  }

  Result<void> run(Samples& samples) {
    if (auto ok = begin(samples); !ok) return ok;
    if (auto ok = pass(samples.established); !ok) return ok;
    return is_copied_ ? copy_anew(samples) : Result<void>{};
  }

 private:
  static constexpr std::size_t kChunk = 4096;  // sessions that begin before their replies come

  Trial(const PairOptions& options, bool is_copied, const CycleClock& clock)
      : options_(options),
        is_copied_(is_copied),
        clock_(clock),
        port_(clock, kFrameBytes, options.burst),
        sessions_(make_sessions(options.sessions, std::min(options.customers, options.sessions),
                                options.seed)) {}
  static constexpr unsigned kFrameBytes = 64;

  /// Starts another server in place of the one that there was.
  Result<void> start_other() {
    server_->set_other(nullptr);
    other_.reset();
    auto other = Server::create(options_, clock_, 2, back_.get(), there_.get());
    if (!other) return std::unexpected(other.error());
    other_ = std::move(*other);
    server_->set_other(other_.get());
    return {};
  }

  /// Starts the other server, and waits until the two have met.
  Result<void> meet() {
    if (auto ok = start_other(); !ok) return ok;
    return wait_until([this] { return server_->copies().status().is_in_sync; },
                      "the other server is not in sync");
  }

  /// Lets the line serve without packets until the condition holds.
  template <class Holds>
  Result<void> wait_until(Holds&& holds, std::string_view why) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!holds() || !server_->may_give()) {
      if (std::chrono::steady_clock::now() > until)
        return std::unexpected(Error{std::string(why) + " within 120 s"});
      port_.play({.plan = {}, .pauses_ms = 2});
      server_->line().run(port_);
    }
    return {};
  }

  /// Returns the nanoseconds that an act takes, without the other server's turns.
  Result<double> timed(const NatPort::Act& act) {
    port_.play(act);
    server_->take_ns_of_other();
    const std::uint64_t start = clock_.begin();
    server_->line().run(port_);
    const double ns = clock_.ns_since(start) - server_->take_ns_of_other();
    if (port_.wrong() == 0 && port_.forwarded() == act.packets) return ns;
    return std::unexpected(Error{fmt::format("of {} packets {} left, {} of them not as they must",
                                             act.packets, port_.forwarded(), port_.wrong())});
  }

  Result<void> begin(Samples& samples) {
    double ns = 0;
    const std::uint64_t before = is_copied_ ? there_->sent() : 0;
    for (std::size_t at = 0; at < sessions_.size(); at += kChunk) {
      const auto some = std::span(sessions_).subspan(at, std::min(kChunk, sessions_.size() - at));
      const NatPlan first = plan_first_packets(some, kFrameBytes);
      const auto out = timed({.plan = first, .packets = first.size(), .begins = some});
      if (!out) return std::unexpected(out.error());
      const NatPlan replies = plan_replies(some, kFrameBytes);
      const auto back = timed({.plan = replies, .packets = replies.size()});
      if (!back) return std::unexpected(back.error());
      ns += *out + *back;
    }
    samples.begun.push_back(1000 * static_cast<double>(sessions_.size()) / ns);
    if (!is_copied_) return {};
    if (auto ok = all_are_there(); !ok) return ok;
    samples.bytes_a_session =
        static_cast<double>(there_->sent() - before) / static_cast<double>(sessions_.size());
    return {};
  }

  /// Waits until the other server has all sessions.
  Result<void> all_are_there() {
    return wait_until(
        [this] {
          return server_->copies().status().is_in_sync &&
                 other_->line().live().v4 == sessions_.size();
        },
        "the other server has not got all sessions");
  }

  Result<void> pass(std::vector<double>& mpps) {
    both_ways_ = plan_both_ways(sessions_, kFrameBytes, options_.seed + 1);
    constexpr std::uint64_t kLeast = 4'000'000;
    const std::uint64_t round = both_ways_.size();
    const std::uint64_t packets = (kLeast + round - 1) / round * round;
    // Some seconds later each session is a stream (conntrack/state.h), and its next packet says so.
    for (unsigned rounds = 0; rounds < 2; ++rounds) {
      const auto done = timed({.plan = both_ways_, .packets = round});
      if (!done) return std::unexpected(done.error());
      port_.skip_ms(3000);
    }
    if (is_copied_) {
      if (auto ok = all_are_there(); !ok) return ok;
    }
    const auto ns = timed({.plan = both_ways_, .packets = packets});
    if (!ns) return std::unexpected(ns.error());
    mpps.push_back(1000 * static_cast<double>(packets) / *ns);
    return {};
  }

  /// Gives the pair another server, which has nothing, while packets flow.
  Result<void> copy_anew(Samples& samples) {
    const std::uint64_t before = there_->sent();
    if (auto ok = start_other(); !ok) return ok;
    const auto start = std::chrono::steady_clock::now();
    double ns = 0;
    std::uint64_t packets = 0;
    const auto is_done = [this] {
      return other_->copies().status().is_in_sync && other_->line().live().v4 == sessions_.size();
    };
    do {
      constexpr std::uint64_t kSome = 200'000;
      const auto some =
          timed({.plan = both_ways_, .packets = std::min<std::uint64_t>(kSome, both_ways_.size())});
      if (!some) return std::unexpected(some.error());
      ns += *some;
      packets += std::min<std::uint64_t>(kSome, both_ways_.size());
      if (std::chrono::steady_clock::now() - start > kPatience)
        return std::unexpected(Error{"the other server has not got all sessions within 120 s"});
    } while (!is_done());
    samples.copying_s.push_back(ns / 1e9);
    samples.while_copying.push_back(1000 * static_cast<double>(packets) / ns);
    samples.copying_bytes = static_cast<double>(there_->sent() - before);
    return {};
  }

  const PairOptions& options_;
  bool is_copied_;
  const CycleClock& clock_;
  NatPort port_;
  std::vector<NatSession> sessions_;
  NatPlan both_ways_;
  std::unique_ptr<Channel> there_;
  std::unique_ptr<Channel> back_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Server> other_;
};

std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> all;
  for (std::size_t n = 0; n < std::min(of.size(), to.size()); ++n) all.push_back(of[n] / to[n]);
  return all;
}

}  // namespace

Result<PairReport> run_pair(const PairOptions& options, const Progress& progress) {
  const CycleClock clock;
  std::map<bool, Samples> samples;
  const auto whole = in_turn(
      options, std::vector<char>{0, 1}, progress,
      [](char is_copied) { return std::string(is_copied != 0 ? "copied" : "alone"); },
      [&](char is_copied) -> Result<double> {
        auto trial = Trial::create(options, is_copied != 0, clock);
        if (!trial) return std::unexpected(trial.error());
        Samples& to = samples[is_copied != 0];
        if (auto ok = (*trial)->run(to); !ok) return std::unexpected(ok.error());
        return to.begun.back();
      });
  if (!whole) return std::unexpected(whole.error());
  PairReport report{.results = {}, .of_begun = {}, .of_established = {}, .complete = *whole};
  for (const auto& [is_copied, of] : samples) {
    PairResult& is = report.results.emplace_back(PairResult{.is_copied = is_copied});
    is.begun = spread_of(of.begun);
    is.established = spread_of(of.established);
    if (!is_copied) continue;
    is.bytes_a_session = of.bytes_a_session;
    is.copying_s = spread_of(of.copying_s);
    is.while_copying = spread_of(of.while_copying);
    is.copying_bytes = of.copying_bytes;
  }
  if (samples.size() == 2) {
    report.of_begun = spread_of(ratios(samples[true].begun, samples[false].begun));
    report.of_established =
        spread_of(ratios(samples[true].established, samples[false].established));
  }
  return report;
}

}  // namespace millrace::bench
