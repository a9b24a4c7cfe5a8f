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

/// Until it is level, or longer than that.
constexpr Seconds kMostLevelling{20};
constexpr std::chrono::milliseconds kInterval{100};
/// Slices of a measurement: cases that can take turns do so slice by slice, since machines change.
constexpr unsigned kSlices = 10;

struct Samples {
  std::vector<double> mpps;
  std::vector<double> busiest;
  std::vector<float> move_ms;
};

/// Workers that serve one case, on threads of their own, from its beginning to its end.
class Run {
 public:
  static Result<std::unique_ptr<Run>> create(const LevelOptions& options, const Capture& capture);
  ~Run() { static_cast<void>(end()); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Each connection is open, and has been met again.
  bool warm();
  /// Moves shards until all workers have as much to do.
  void level();
  /// Measures a slice, while shards move without a pause or do not.
  void measure(bool moves, Samples& samples);
  /// Adds how long each move took; while none is under way.
  void add_moves(std::vector<float>& ms) const {
    ms.insert(ms.end(), mover_->took_ms().begin(), mover_->took_ms().end());
  }
  Result<void> end();
  Pages pages() const { return workers_->report_v4().pages; }

 private:
  Run(const LevelOptions& options, Workers workers)
      : options_(options), workers_(std::move(workers)) {}
  void start();
  std::vector<std::uint64_t> served() const;
  std::vector<std::uint64_t> packets_of_shards() const;

  const LevelOptions& options_;
  std::optional<Workers> workers_;
  std::shared_ptr<Owners> owners_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Mover> mover_;
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
  run->mover_ = std::make_unique<Mover>(run->owners_->moves(), options.seed);
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

void Run::measure(bool moves, Samples& samples) {
  const auto before = served();
  const auto start = SteadyClock::now();
  if (moves) mover_->start();
  std::this_thread::sleep_for(Seconds(options_.seconds / kSlices));
  const double took = Seconds(SteadyClock::now() - start).count();
  const auto after = served();
  if (moves) {
    mover_->stop();
    while (!mover_->is_at_rest() && !has_ended_)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::uint64_t sum = 0;
  std::uint64_t most = 0;
  for (std::size_t n = 0; n < after.size(); ++n) {
    sum += after[n] - before[n];
    most = std::max(most, after[n] - before[n]);
  }
  samples.mpps.push_back(static_cast<double>(sum) / took / 1e6);
  samples.busiest.push_back(static_cast<double>(most * after.size()) / static_cast<double>(sum));
}

Result<void> Run::end() {
  if (!runs_.joinable()) return {};
  stop_ = true;
  runs_.join();
  if (!*ran_) return *ran_;
  for (const auto& port : ports_) {
    if (port->dropped() > 0) return std::unexpected(Error{"a ring between workers ran full"});
  }
  const WorkerCounters counters = workers_->counters();
  if (counters.opened.value() == options_.live && counters.ended() == 0) return {};
  return std::unexpected(
      Error{fmt::format("of {} connections {} were opened, and {} have ended", options_.live,
                        counters.opened.value(), counters.ended())});
}

Result<Capture> traffic_of(const LevelOptions& options, Profile profile) {
  const bool is_skewed = profile == Profile::skewed;
  return generate({.profile = profile,
                   .connections = options.live,
                   .packets = (is_skewed ? 4 : 1) * options.live,
                   .seed = options.seed,
                   .midstream = true});
}

}  // namespace

std::string_view to_string(LevelCase of) {
  return std::ranges::find(kCases, of, &std::pair<std::string_view, LevelCase>::second)->first;
}

Result<LevelReport> run_level(const LevelOptions& options, const Progress& progress) {
  LevelReport report;
  std::map<LevelCase, Samples> samples;
  std::size_t to_come = options.repetitions * kCases.size();
  for (const Profile profile : {Profile::uniform, Profile::skewed}) {
    if (!progress(fmt::format("{} traffic: making it", to_string(profile)))) return report;
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
      auto run = Run::create(options, *capture);
      if (!run) return std::unexpected(run.error());
      if (!(*run)->warm())
        return std::unexpected(Error{"workers did not serve all packets twice in ten minutes"});
      for (unsigned slice = 0; slice < kSlices; ++slice) {
        (*run)->measure(false, samples[still]);
        if (is_even) (*run)->measure(true, samples[other]);
      }
      progress.seen(to_string(still), samples[still].mpps.back());
      if (!is_even) (*run)->level();
      for (unsigned slice = 0; slice < kSlices && !is_even; ++slice)
        (*run)->measure(false, samples[other]);
      progress.seen(to_string(other), samples[other].mpps.back());
      (*run)->add_moves(samples[other].move_ms);
      if (auto ok = (*run)->end(); !ok) return std::unexpected(ok.error());
      report.pages = std::max(report.pages, (*run)->pages());
    }
  }
  const std::vector<double>& even = samples.at(LevelCase::even).mpps;
  for (const auto& [name, of] : kCases) {
    Samples& all = samples.at(of);
    std::vector<double> of_even;
    std::ranges::transform(all.mpps, even, std::back_inserter(of_even), std::divides());
    LevelResult result{.of = of,
                       .mpps = spread_of(all.mpps),
                       .of_even = spread_of(of_even),
                       .busiest = spread_of(all.busiest),
                       .move_ms = {}};
    if (!all.move_ms.empty()) {
      result.moves = all.move_ms.size();
      result.connections_per_move = static_cast<double>(options.live) / options.shards;
      result.move_ms = percentiles_of(std::move(all.move_ms), {50, 99, 100});
    }
    report.results.push_back(std::move(result));
  }
  report.complete = true;
  return report;
}

}  // namespace millrace::bench
