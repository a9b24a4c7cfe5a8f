#include "bench/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "bench/timed_run.h"
#include "conntrack/schemes.h"
#include "worker/config.h"
#include "worker/workers.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Who takes so much more time than the best is out.
constexpr std::array<double, kRounds> kMargin{0.6, 0.3, 0.15};
/// What a combination is timed for in each round, and in the final, in milliseconds.
constexpr std::array<double, kRounds + 1> kTimed{15, 40, 100, 200};
constexpr std::size_t kFinalists = 5;
constexpr unsigned kFinalsLeast = 5;
/// So many times the turns for those that lead after exhaustive trial.
constexpr unsigned kLeadersTurns = 2;

/// How often time advances and idle connections are looked for, by the capture's time, at most: a
/// capture that passes thousands of times faster than it was taken would do little else.
constexpr double kPacketsAStep = 5000;
constexpr double kLeastStepMs = 10;
constexpr double kMostStepMs = 1000;
/// Of what `race` serves: who serves less is out.
constexpr double kServedLeast = 0.99;
/// To see what room it takes: a second pass meets what the first one has left.
constexpr unsigned kPasses = 2;

/// Twice as many as there were, in two digits.
std::size_t room_for(double connections) {
  constexpr double kLeast = 1000;
  const double wanted = std::max(2 * connections, kLeast);
  const double unit = std::pow(10, std::floor(std::log10(wanted)) - 1);
  return static_cast<std::size_t>(std::ceil(wanted / unit) * unit);
}

double tracked_by(const WorkerCounters& counters) {
  return static_cast<double>(counters.verdict[static_cast<std::size_t>(Verdict::tracked)].value());
}

/// A combination under trial, and what was seen of it in this round.
struct Entrant {
  Tried tried;
  std::vector<double> ns;
  std::vector<double> waiting;

  bool is_in() const { return tried.failed.empty(); }
  double least() const { return *std::ranges::min_element(ns); }
};

class Trials {
 public:
  Trials(const Capture& capture, const AdviceOptions& options)
      : capture_(&capture), options_(&options) {}

  /// What the capture is like, and how much room it takes.
  Result<void> prepare(Advice& advice);
  /// Passes it for about so many milliseconds. What the combination cannot do is noted, and is no
  /// error. Error (failed): no memory even for this.
  Result<void> run(Entrant& entrant, double ms);

 private:
  Result<Workers> make(const Combination& combination) const;
  /// Finds the room in which every connection gets an entry: what there is, twice as much, and so
  /// on, as far as memory goes. The counters of two passes in it.
  Result<WorkerCounters> find_room();

  const Capture* capture_;
  const AdviceOptions* options_;
  std::vector<CapturePart> parts_;
  std::size_t capacity_ = 0;
  std::size_t capacity_v6_ = 0;
  unsigned step_ms_ = 10;
  double ns_per_packet_ = 100;  // about
  double tracked_once_ = 0;     // packets of one pass that are served through an entry
  double served_once_ = 0;      // and all that are
  CycleClock clock_;
};

Result<Workers> Trials::make(const Combination& combination) const {
  Config config;
  config.workers = options_->workers;
  config.table.scheme = combination.table;
  config.sharing = combination.sharing;
  config.ageing.scheme = combination.ageing;
  config.ageing.interval_ms = step_ms_;
  config.table.capacity = capacity_;
  config.table.capacity_v6 = capacity_v6_;
  LineConfig line = line_config(config);
  line.pages = options_->pages;
  line.secret = Secret::from_seed(options_->seed);
  line.catch_up = true;
  return Workers::create(config.workers, line, balance_config(config), config.spread.entries);
}

Result<void> Trials::prepare(Advice& advice) {
  auto trace = profile_of(*capture_);
  if (!trace) return std::unexpected(trace.error());
  advice.trace = *trace;
  if (trace->connections() == 0)
    return std::unexpected(Error{"there is no connection in the capture: give another one"});
  capacity_ = room_for(static_cast<double>(trace->connections_v4));
  capacity_v6_ = room_for(static_cast<double>(trace->connections_v6));
  const double pace_ms = 1000 * trace->seconds / static_cast<double>(trace->packets);
  step_ms_ = static_cast<unsigned>(std::clamp(kPacketsAStep * pace_ms, kLeastStepMs, kMostStepMs));
  const auto seen = find_room();
  if (!seen) return std::unexpected(seen.error());
  advice.peak = seen->peak.value();
  const double lived = static_cast<double>(advice.peak) / static_cast<double>(trace->connections());
  capacity_ = room_for(lived * static_cast<double>(trace->connections_v4));
  capacity_v6_ = room_for(lived * static_cast<double>(trace->connections_v6));
  const auto served = find_room();
  if (!served) return std::unexpected(served.error());
  advice.capacity = capacity_;
  advice.capacity_v6 = capacity_v6_;
  tracked_once_ = tracked_by(*served) / kPasses;
  served_once_ = static_cast<double>(served_by(*served)) / kPasses;
  advice.tracked = tracked_once_ / served_once_;
  return {};
}

Result<WorkerCounters> Trials::find_room() {
  std::optional<WorkerCounters> seen;
  // One worker may have all connections, and none of them be answered: a quarter may be half open.
  const std::size_t most = capacity_ * 8 * options_->workers;
  for (;; capacity_ *= 2, capacity_v6_ *= 2) {
    auto workers = make({"race", "sharded", "wheel"});
    if (!workers) {
      if (!seen) return std::unexpected(workers.error());
      capacity_ /= 2;
      capacity_v6_ /= 2;
      return *seen;
    }
    auto parts = parts_for(*workers, *capture_, options_->seed + 1);
    if (!parts) return std::unexpected(parts.error());
    parts_ = std::move(*parts);
    const auto run =
        timed_run(*workers, *capture_, parts_,
                  {.burst = options_->burst, .loops = kPasses, .step_ms = step_ms_}, clock_);
    if (!run) return std::unexpected(run.error());
    ns_per_packet_ = run->ns_per_packet / options_->workers;
    seen = workers->counters();
    const std::uint64_t without = seen->refused.value() + seen->over_budget.value();
    if (without == 0 || 2 * capacity_ > most) return *seen;
  }
}

Result<void> Trials::run(Entrant& entrant, double ms) {
  Tried& tried = entrant.tried;
  auto workers = make(tried.combination);
  if (!workers) {
    tried.failed = workers.error().message;
    return {};
  }
  const double pass_ms = ns_per_packet_ * static_cast<double>(capture_->size()) * 1e-6;
  // The first pass opens what the others find.
  const auto loops = static_cast<std::uint32_t>(std::clamp(std::ceil(ms / pass_ms), 2.0, 1e5));
  const auto run =
      timed_run(*workers, *capture_, parts_,
                {.burst = options_->burst, .loops = loops, .step_ms = step_ms_}, clock_);
  if (!run) return std::unexpected(run.error());
  entrant.ns.push_back(run->ns_per_packet);
  entrant.waiting.push_back(run->waiting);
  const TableReport v4 = workers->report_v4();
  const TableReport v6 = workers->report_v6();
  tried.memory_bytes = v4.memory_bytes + v6.memory_bytes;
  tried.pages = std::max(v4.pages, v6.pages);
  const WorkerCounters counters = workers->counters();
  if (const std::uint64_t refused = counters.refused.value(); refused > 0)
    tried.failed = fmt::format("refused {} connections although it promises room", refused);
  const auto falls_short = [loops](double packets, double once) {
    return packets < kServedLeast * once * loops;
  };
  if (falls_short(static_cast<double>(served_by(counters)), served_once_))
    tried.failed =
        fmt::format("served {} packets of {:.0f}", served_by(counters), served_once_ * loops);
  else if (falls_short(tracked_by(counters), tracked_once_))
    tried.failed = fmt::format("served {:.0f} packets of {:.0f} through an entry",
                               tracked_by(counters), tracked_once_ * loops);
  return {};
}

/// All combinations, and those that are still in.
struct Field {
  explicit Field(unsigned workers) {
    for (Combination& one : combinations(workers))
      all.push_back({.tried = {.combination = std::move(one)}});
    for (Entrant& one : all) still.push_back(&one);
  }

  /// What comes, of those still in, does not compare with what was measured.
  void begin(const std::string& title, const Progress& progress) {
    progress({.what = title, .anew = true});
    for (Entrant* const entrant : still) {
      entrant->ns.clear();
      entrant->waiting.clear();
    }
  }

  std::vector<Entrant> all;
  std::vector<Entrant*> still;
};

/// Sums up what a round has shown: the best first, and those that are out last.
void sum_up(std::vector<Entrant*>& round, unsigned number) {
  double best = std::numeric_limits<double>::max();
  for (Entrant* const entrant : round) {
    entrant->tried.round = number;
    if (entrant->ns.empty()) continue;
    entrant->tried.ns_per_packet = spread_of(entrant->ns);
    entrant->tried.waiting = spread_of(entrant->waiting).median;
    if (entrant->is_in()) best = std::min(best, entrant->tried.ns_per_packet.median);
  }
  for (Entrant* const entrant : round)
    entrant->tried.behind = entrant->tried.ns_per_packet.median / best - 1;
  std::ranges::sort(round, {}, [](const Entrant* entrant) {
    return std::pair(!entrant->is_in(), entrant->tried.ns_per_packet.median);
  });
}

/// Each in turn, so many times. False where `progress` ended it.
Result<bool> take_turns(Trials& trials, const std::vector<Entrant*>& round, unsigned times,
                        double ms, const std::string& title, const Progress& progress) {
  for (unsigned time = 0; time < times; ++time) {
    std::size_t at = 0;
    for (Entrant* const entrant : round) {
      ++at;
      if (!entrant->is_in()) continue;
      const auto& [table, sharing, ageing] = entrant->tried.combination;
      const std::string who = fmt::format("{}, {}, {}", table, sharing, ageing);
      const std::string turn = times > 1 ? fmt::format(", turn {} of {}", time + 1, times) : "";
      const std::string what =
          fmt::format("{}{}, {} of {}: {}", title, turn, at, round.size(), who);
      if (!progress({.what = what, .who = who})) return false;
      if (auto ok = trials.run(*entrant, ms); !ok) return std::unexpected(ok.error());
      if (entrant->is_in()) progress.seen(who, entrant->ns.back());
    }
  }
  return true;
}

}  // namespace

std::vector<Combination> combinations(unsigned workers) {
  std::vector<Combination> all;
  for (const std::string& sharing : SharingSchemes::names()) {
    if (workers == 1 && sharing != Sharded::kName) continue;
    for (const std::string& table : tables_for(sharing)) {
      for (const std::string& ageing : AgeingSchemes::names()) {
        if (ageing != NoAgeing::kName) all.push_back({table, sharing, ageing});
      }
    }
  }
  return all;
}

Result<Advice> run_advice(const Capture& capture, const AdviceOptions& options,
                          const Progress& progress) {
  const auto until = SteadyClock::now() + std::chrono::duration<double>(options.seconds);
  Advice advice;
  Trials trials(capture, options);
  if (!progress("looking at the capture")) return advice;
  if (auto ok = trials.prepare(advice); !ok) return std::unexpected(ok.error());
  Field field(options.workers);
  auto& still = field.still;
  bool goes_on = true;
  for (unsigned number = 1; number <= kRounds && goes_on; ++number) {
    constexpr unsigned kTimes = 3;
    const std::string title = fmt::format("round {} of {}", number, kRounds);
    field.begin(title, progress);
    const auto done = take_turns(trials, still, kTimes, kTimed[number - 1], title, progress);
    if (!done) return std::unexpected(done.error());
    goes_on = *done;
    if (!goes_on && number == 1) return advice;
    if (!goes_on) break;  // what the round before has shown stands
    sum_up(still, number);
    const auto stays = [number](const Entrant* entrant) {
      return entrant->is_in() && entrant->tried.behind <= kMargin[number - 1];
    };
    still.erase(std::ranges::find_if_not(still, stays), still.end());
    if (still.empty())
      return std::unexpected(Error{"no combination works: " + field.all.front().tried.failed});
    if (number == kRounds) still.resize(std::min(still.size(), kFinalists));
  }
  const std::string title =
      options.seconds > 0 ? fmt::format("final, until {:g} s", options.seconds) : "final";
  if (goes_on) field.begin(title, progress);
  for (unsigned turn = 0; goes_on && (turn < kFinalsLeast || SteadyClock::now() < until); ++turn) {
    const auto done = take_turns(trials, still, 1, kTimed[kRounds], title, progress);
    if (!done) return std::unexpected(done.error());
    goes_on = *done;
  }
  if (goes_on) sum_up(still, kRounds + 1);
  advice.complete = goes_on;
  for (Entrant& one : field.all) advice.tried.push_back(std::move(one.tried));
  std::ranges::sort(advice.tried, {}, [](const Tried& one) {
    return std::tuple(!one.failed.empty(), kRounds + 1 - one.round, one.ns_per_packet.median);
  });
  return advice;
}

const Tried& Exhausted::advised() const {
  return *std::ranges::find(all, advice.best().combination, &Tried::combination);
}

Result<Exhausted> run_exhaustive(const Capture& capture, const AdviceOptions& options,
                                 const Progress& progress) {
  Exhausted exhausted;
  auto advice = run_advice(capture, options, progress);
  if (!advice) return std::unexpected(advice.error());
  exhausted.advice = std::move(*advice);
  if (!exhausted.advice.complete) return exhausted;
  Trials trials(capture, options);
  Advice again;
  if (auto ok = trials.prepare(again); !ok) return std::unexpected(ok.error());
  Field field(options.workers);
  const auto measure = [&](unsigned times, const std::string& title) {
    field.begin(title, progress);
    return take_turns(trials, field.still, times, kTimed[kRounds], title, progress);
  };
  const auto done = measure(options.repetitions, "all of them");
  if (!done) return std::unexpected(done.error());
  if (!*done) return exhausted;
  sum_up(field.still, 1);
  // The least of so many medians is less than what it stands for: who leads, and who was advised,
  // are measured again, side by side, for longer.
  const auto leads = std::ranges::stable_partition(field.still, [&](const Entrant* entrant) {
    return (entrant->is_in() && entrant->tried.behind <= kMargin.back()) ||
           entrant->tried.combination == exhausted.advice.best().combination;
  });
  const std::vector<Entrant*> others(leads.begin(), leads.end());
  field.still.erase(leads.begin(), leads.end());
  const auto decided = measure(kLeadersTurns * options.repetitions, "those that lead");
  if (!decided) return std::unexpected(decided.error());
  exhausted.complete = *decided;
  if (!exhausted.complete) return exhausted;
  sum_up(field.still, 2);
  field.still.insert(field.still.end(), others.begin(), others.end());
  for (Entrant* const entrant : field.still) exhausted.all.push_back(std::move(entrant->tried));
  return exhausted;
}

}  // namespace millrace::bench
