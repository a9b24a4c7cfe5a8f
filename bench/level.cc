#include "level.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "bench/exchange_port.h"
#include "function/kinds.h"
#include "shard/level.h"
#include "shard/split.h"
#include "traffic/generate.h"
#include "worker/workers.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::array<std::pair<std::string_view, LevelCase>, 4> kCases{{
    {"even", LevelCase::even},
    {"moving", LevelCase::moving},
    {"skewed", LevelCase::skewed},
    {"levelled", LevelCase::levelled},
}};

/// Time after which `Run::level` begins no further round of moves.
constexpr Seconds kMostLevelling{20};
constexpr std::chrono::milliseconds kInterval{100};
/// Slices of a measurement: cases that can take turns do so slice by slice, because a machine's
/// speed changes.
constexpr unsigned kSlices = 10;

struct LatencySamples {
  std::uint64_t packets = 0;
  std::vector<double> mean_us;
  std::array<std::vector<double>, LevelLatency::kPercents.size()> percentile_us;

  void add(const Latency& of_slice);
};

struct Samples {
  std::vector<double> mpps;
  std::vector<double> busiest;
  std::vector<float> move_ms;
  LatencySamples all;
  LatencySamples of_moving_shard;
  std::vector<float> move_ms_at_rate;
};

void LatencySamples::add(const Latency& of_slice) {
  if (of_slice.total() == 0) return;
  packets += of_slice.total();
  mean_us.push_back(of_slice.mean());
  for (std::size_t n = 0; n < percentile_us.size(); ++n)
    percentile_us[n].push_back(of_slice.percentile(LevelLatency::kPercents[n]));
}

/// Workers that serve one kind of traffic, on threads of their own, until `end`.
class Run {
 public:
  static Result<std::unique_ptr<Run>> create(const LevelOptions& options, const Capture& capture);
  ~Run() { static_cast<void>(end()); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Waits until every port has received all its packets twice, so that each connection is open and
  /// has been looked up again. Returns false after ten minutes, or if the run has ended.
  bool warm();
  /// Moves shards to make the workers' loads equal: until the leveller has found nothing to move
  /// three times in a row, or for about `kMostLevelling`.
  void level();
  /// Measures the throughput of a slice. If `moves`, shards move meanwhile without a pause.
  void measure(bool moves, Samples& samples);
  /// Sets the rate at which packets arrive; 0: as fast as workers receive them.
  void offer(double mpps);
  /// Measures the latency of a slice. If `moves`, shards move meanwhile without a pause.
  void measure_latency(bool moves, Samples& samples);
  /// Appends the durations of the moves that have ended since the previous call. Must be called
  /// only while no move is under way.
  void add_moves(std::vector<float>& ms) {
    ms.insert(ms.end(), mover_->took_ms().begin() + told_, mover_->took_ms().end());
    told_ = static_cast<std::ptrdiff_t>(mover_->took_ms().size());
  }
  Result<void> end();
  /// Adds the latency of each slice to the slice's samples. Must be called after `end`.
  void add_latency() const;
  std::uint64_t arrived() const { return sum(&ExchangePort::arrived); }
  std::uint64_t lost() const { return sum(&ExchangePort::lost); }
  Pages pages() const { return workers_->report_v4().pages; }

 private:
  Run(const LevelOptions& options, Workers workers)
      : options_(options), workers_(std::move(workers)) {}
  void start();
  void stop_moving();
  std::uint64_t sum(std::uint64_t (ExchangePort::*count)() const) const {
    std::uint64_t all = 0;
    for (const auto& port : ports_) all += (*port.*count)();
    return all;
  }
  std::vector<std::uint64_t> served() const;
  std::vector<std::uint64_t> packets_of_shards() const;

  const LevelOptions& options_;
  std::optional<Workers> workers_;
  std::shared_ptr<Owners> owners_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Mover> mover_;
  std::ptrdiff_t told_ = 0;  // moves that `add_moves` has appended
  Pacing pacing_{2 * kSlices};
  std::vector<Samples*> latency_of_;     // samples of each slice
  std::vector<std::uint16_t> shard_of_;  // by position of the packet in the capture
  std::vector<std::unique_ptr<ExchangePort>> ports_;
  std::atomic<bool> stop_ = false;
  std::optional<Result<void>> ran_;
  std::atomic<bool> has_ended_ = false;
  std::jthread runs_;
};

Result<std::unique_ptr<Run>> Run::create(const LevelOptions& options, const Capture& capture) {
  const LineConfig line{.table = options.table,
                        .capacity = 2 * options.live,
                        .capacity_v6 = 1,
                        .timeouts = Timeouts::all(2'000'000'000),
                        .pages = options.pages,
                        .secret = Secret::from_seed(options.seed),
                        .shards_that_move = options.shards};
  auto workers = Workers::create(options.workers, line, default_function(), {}, options.shards);
  if (!workers) return std::unexpected(workers.error());
  const auto spread = [&options](std::uint64_t more) {
    return spread_named("keyed")->create(Secret::from_seed(options.seed + more));
  };
  const Indirection indirection(options.shards, options.workers);
  auto entries = shards_of(capture, *spread(1), indirection, workers->steering());
  if (!entries) return std::unexpected(entries.error());
  std::unique_ptr<Run> run(new Run(options, std::move(*workers)));
  run->owners_ = std::make_shared<Owners>(spread(2), indirection, options.workers);
  auto exchange = Exchange::create(options.workers, run->owners_);
  if (!exchange) return std::unexpected(exchange.error());
  run->exchange_ = std::move(*exchange);
  auto parts = split(*entries, indirection, options.workers);
  std::vector<Line*> lines;
  for (unsigned n = 0; n < options.workers; ++n) {
    run->ports_.push_back(std::make_unique<ExchangePort>(
        *run->exchange_, n, capture, std::move(parts[n].positions), options.burst, run->stop_));
    lines.push_back(&run->workers_->line(n));
  }
  for (const auto& port : run->ports_) port->exchange().set_lines(lines);
  auto owned = shards_of(capture, *spread(2), indirection, run->workers_->steering());
  if (!owned) return std::unexpected(owned.error());
  run->shard_of_ = std::move(*owned);
  run->mover_ = std::make_unique<Mover>(run->owners_->moves(), options.seed);
  for (const auto& port : run->ports_) port->set_pacing(run->pacing_, *run->mover_, run->shard_of_);
  run->ports_.front()->set_mover(*run->mover_);
  run->start();
  return run;
}

void Run::start() {
  runs_ = std::jthread([this] {
    std::vector<Port*> ports;
    for (const auto& port : ports_) ports.push_back(port.get());
    ran_ = workers_->run(ports);
    has_ended_ = true;
  });
}

bool Run::warm() {
  const auto is_warm = [this] {
    return std::ranges::all_of(ports_, [](const auto& port) { return port->rounds() >= 2; });
  };
  const auto until = SteadyClock::now() + std::chrono::minutes(10);
  while (!is_warm()) {
    if (SteadyClock::now() > until || has_ended_) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::vector<std::uint64_t> Run::served() const {
  std::vector<std::uint64_t> all;
  for (const auto& port : ports_) all.push_back(port->served());
  return all;
}

std::vector<std::uint64_t> Run::packets_of_shards() const {
  std::vector<std::uint64_t> all(options_.shards);
  for (unsigned shard = 0; shard < options_.shards; ++shard) {
    for (const auto& port : ports_) all[shard] += port->exchange().packets_of(shard);
  }
  return all;
}

void Run::level() {
  Leveller leveller(options_.workers);
  const auto until = SteadyClock::now() + kMostLevelling;
  static_cast<void>(
      leveller.decide(Indirection(options_.shards, options_.workers), packets_of_shards()));
  for (unsigned quiet = 0; quiet < 3 && SteadyClock::now() < until;) {
    std::this_thread::sleep_for(kInterval);
    Indirection now(options_.shards, options_.workers);
    for (unsigned shard = 0; shard < options_.shards; ++shard)
      now.give(shard, owners_->worker_of(shard));
    const auto moves = leveller.decide(now, packets_of_shards());
    for (const Move& one : moves) {
      owners_->moves().begin(one.shard, one.to);
      while (owners_->moves().is_under_way() && !has_ended_)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    quiet = moves.empty() ? quiet + 1 : 0;
  }
}

void Run::stop_moving() {
  mover_->stop();
  while (!mover_->is_at_rest() && !has_ended_)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Run::offer(double mpps) {
  pacing_.set_ns_each(mpps > 0 ? 1000 / mpps : 0);
  // Gives the workers time to serve the packets that arrived at the previous rate.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void Run::measure_latency(bool moves, Samples& samples) {
  latency_of_.push_back(&samples);
  if (moves) mover_->start();
  pacing_.record(static_cast<unsigned>(latency_of_.size() - 1));
  std::this_thread::sleep_for(Seconds(options_.seconds / kSlices));
  pacing_.record(Pacing::kNone);
  if (moves) stop_moving();
}

void Run::add_latency() const {
  for (std::size_t slice = 0; slice < latency_of_.size(); ++slice) {
    SliceLatency of_slice;
    for (const auto& port : ports_) {
      of_slice.all.add(port->latencies()[slice].all);
      of_slice.moving.add(port->latencies()[slice].moving);
    }
    latency_of_[slice]->all.add(of_slice.all);
    latency_of_[slice]->of_moving_shard.add(of_slice.moving);
  }
}

void Run::measure(bool moves, Samples& samples) {
  std::uint64_t sum = 0;
  std::uint64_t most = 0;
  double took = 0;
  // If other programs have the processors for a whole slice, no packet is served: then the slice is
  // measured again.
  do {
    const auto before = served();
    const auto start = SteadyClock::now();
    if (moves) mover_->start();
    std::this_thread::sleep_for(Seconds(options_.seconds / kSlices));
    took = Seconds(SteadyClock::now() - start).count();
    const auto after = served();
    if (moves) stop_moving();
    sum = most = 0;
    for (std::size_t n = 0; n < after.size(); ++n) {
      sum += after[n] - before[n];
      most = std::max(most, after[n] - before[n]);
    }
  } while (sum == 0 && !has_ended_);
  samples.mpps.push_back(static_cast<double>(sum) / took / 1e6);
  samples.busiest.push_back(static_cast<double>(most * ports_.size()) /
                            static_cast<double>(std::max(sum, std::uint64_t{1})));
}

Result<void> Run::end() {
  if (!runs_.joinable()) return {};
  stop_ = true;
  runs_.join();
  if (!*ran_) return *ran_;
  for (const auto& port : ports_) {
    if (port->dropped() > 0)
      return std::unexpected(Error{"a ring between workers ran full, and packets were dropped"});
  }
  const WorkerCounters counters = workers_->counters();
  if (counters.opened.value() == options_.live && counters.ended() == 0) return {};
  return std::unexpected(
      Error{fmt::format("of {} connections {} were opened, and {} have ended: each must stay open",
                        options_.live, counters.opened.value(), counters.ended())});
}

Result<Capture> traffic_of(const LevelOptions& options, Profile profile) {
  const bool is_skewed = profile == Profile::skewed;
  return generate({.profile = profile,
                   .connections = options.live,
                   .packets = (is_skewed ? 4 : 1) * options.live,
                   .seed = options.seed,
                   .midstream = true});
}

using SamplesOf = std::map<LevelCase, Samples>;

/// Returns the rate at which latency is measured, in Mpps.
double rate_of(const LevelOptions& options, const SamplesOf& samples) {
  return options.offered * spread_of(samples.at(LevelCase::even).mpps).median;
}

void measure_even(Run& run, const LevelOptions& options, SamplesOf& samples) {
  Samples& still = samples[LevelCase::even];
  Samples& moving = samples[LevelCase::moving];
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    run.measure(false, still);
    run.measure(true, moving);
  }
  run.add_moves(moving.move_ms);
  run.offer(rate_of(options, samples));
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    run.measure_latency(false, still);
    run.measure_latency(true, moving);
  }
  run.add_moves(moving.move_ms_at_rate);
}

void measure_skewed(Run& run, SamplesOf& samples) {
  for (unsigned slice = 0; slice < kSlices; ++slice) run.measure(false, samples[LevelCase::skewed]);
  run.level();
  for (unsigned slice = 0; slice < kSlices; ++slice)
    run.measure(false, samples[LevelCase::levelled]);
}

/// Measures both cases of one kind of traffic, once.
Result<void> measure_both(const LevelOptions& options, const Capture& capture, Profile profile,
                          SamplesOf& samples, LevelReport& report) {
  auto run = Run::create(options, capture);
  if (!run) return std::unexpected(run.error());
  if (!(*run)->warm()) {
    if (auto ok = (*run)->end(); !ok) return ok;
    return std::unexpected(
        Error{"not every packet was received twice within ten minutes, or a worker ended early"});
  }
  if (profile == Profile::uniform) {
    measure_even(**run, options, samples);
  } else {
    measure_skewed(**run, samples);
  }
  if (auto ok = (*run)->end(); !ok) return ok;
  (*run)->add_latency();
  report.arrived += (*run)->arrived();
  report.lost += (*run)->lost();
  report.pages = std::max(report.pages, (*run)->pages());
  return {};
}

LevelResult result_of(LevelCase of, const Samples& samples, const std::vector<double>& even,
                      const LevelOptions& options) {
  std::vector<double> of_even;
  std::ranges::transform(samples.mpps, even, std::back_inserter(of_even), std::divides());
  LevelResult result{.of = of,
                     .mpps = spread_of(samples.mpps),
                     .of_even = spread_of(of_even),
                     .busiest = spread_of(samples.busiest),
                     .move_ms = {}};
  if (samples.move_ms.empty()) return result;
  result.moves = samples.move_ms.size();
  result.connections_per_move = static_cast<double>(options.live) / options.shards;
  result.move_ms = percentiles_of(samples.move_ms, {50, 99, 100});
  return result;
}

LevelLatency latency_of(LevelPackets packets, const LatencySamples& samples) {
  LevelLatency latency{.of = packets,
                       .packets = samples.packets,
                       .mean = spread_of(samples.mean_us),
                       .percentiles = {}};
  for (std::size_t n = 0; n < latency.percentiles.size(); ++n)
    latency.percentiles[n] = spread_of(samples.percentile_us[n]);
  return latency;
}

/// Adds the latency that was measured at a given rate. Leaves out a kind of packets if no packet of
/// that kind was measured, for example because workers got no processor.
void add_latency(const SamplesOf& samples, LevelReport& report) {
  const Samples& moving = samples.at(LevelCase::moving);
  const auto add = [&report](LevelPackets packets, const LatencySamples& of_these) {
    if (of_these.packets > 0) report.latency.push_back(latency_of(packets, of_these));
  };
  add(LevelPackets::at_rest, samples.at(LevelCase::even).all);
  add(LevelPackets::while_moving, moving.all);
  add(LevelPackets::of_moving_shard, moving.of_moving_shard);
  report.moves_at_rate = moving.move_ms_at_rate.size();
  if (report.moves_at_rate > 0)
    report.move_ms_at_rate = percentiles_of(moving.move_ms_at_rate, {50, 99, 100});
}

}  // namespace

std::string_view to_string(LevelCase of) {
  return std::ranges::find(kCases, of, &std::pair<std::string_view, LevelCase>::second)->first;
}

std::string_view to_string(LevelPackets of) {
  constexpr std::array<std::string_view, 3> kNames{"at rest", "while shards move",
                                                   "of the moving shard"};
  return kNames[static_cast<std::size_t>(of)];
}

Result<LevelReport> run_level(const LevelOptions& options, const Progress& progress) {
  LevelReport report;
  SamplesOf samples;
  std::size_t to_come = options.repetitions * kCases.size();
  for (const Profile profile : {Profile::uniform, Profile::skewed}) {
    if (!progress(fmt::format("{}: making the traffic", to_string(profile)))) return report;
    const auto capture = traffic_of(options, profile);
    if (!capture) return std::unexpected(capture.error());
    const bool is_even = profile == Profile::uniform;
    const LevelCase still = is_even ? LevelCase::even : LevelCase::skewed;
    const LevelCase other = is_even ? LevelCase::moving : LevelCase::levelled;
    for (unsigned repetition = 0; repetition < options.repetitions; ++repetition) {
      const std::string what = fmt::format("repetition {} of {}: {} and {}", repetition + 1,
                                           options.repetitions, to_string(still), to_string(other));
      if (!progress({.what = what, .who = to_string(still), .to_come = to_come})) return report;
      to_come -= 2;
      const auto done = measure_both(options, *capture, profile, samples, report);
      if (!done) return std::unexpected(done.error());
      progress.seen(to_string(still), samples[still].mpps.back());
      progress.seen(to_string(other), samples[other].mpps.back());
    }
  }
  const std::vector<double>& even = samples.at(LevelCase::even).mpps;
  for (const auto& [name, of] : kCases)
    report.results.push_back(result_of(of, samples.at(of), even, options));
  add_latency(samples, report);
  SimulationOptions simulation = options.simulation;
  simulation.shards = options.shards;
  simulation.seed = options.seed;
  auto simulated = simulate_level(simulation, progress);
  if (!simulated) return std::unexpected(simulated.error());
  report.simulation = std::move(*simulated);
  report.complete = report.simulation.complete;
  return report;
}

}  // namespace millrace::bench
