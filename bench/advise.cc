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

namespace {

using SteadyClock = std::chrono::steady_clock;

/// Who takes so much more time than the best is out.
constexpr std::array<double, kRounds> kMargin{0.6, 0.3, 0.15};
/// So many turns each in a round.
constexpr unsigned kTurns = 3;
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
/// So many times the first room, for each worker, is enough for every connection: all may be one
/// worker's, and where none is answered they get a quarter; two are left to spare.
constexpr std::size_t kRoomMost = 8;

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
struct Candidate {
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
  Result<void> run(Candidate& candidate, double ms);

 private:
  Result<Workers> make(const Combination& combination) const;
  /// Finds the room in which every connection gets an entry: what there is, twice as much, and so
  /// on, up to `kRoomMost` and as far as memory goes. The counters of two passes in it.
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
  if (served->refused.value() > 0)
    return std::unexpected(
        Error{"there is no memory for tables that take every connection: give a shorter capture"});
  advice.capacity = capacity_;
  advice.capacity_v6 = capacity_v6_;
  tracked_once_ = tracked_by(*served) / kPasses;
  served_once_ = static_cast<double>(served_by(*served)) / kPasses;
  advice.tracked = tracked_once_ / served_once_;
  return {};
}

Result<WorkerCounters> Trials::find_room() {
  std::optional<WorkerCounters> seen;
  const std::size_t most = capacity_ * kRoomMost * options_->workers;
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

Result<void> Trials::run(Candidate& candidate, double ms) {
  Tried& tried = candidate.tried;
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
  candidate.ns.push_back(run->ns_per_packet);
  candidate.waiting.push_back(run->waiting);
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
struct Candidates {
  explicit Candidates(unsigned workers) {
    for (Combination& one : combinations(workers))
      all.push_back({.tried = {.combination = std::move(one)}});
    for (Candidate& one : all) still.push_back(&one);
  }

  /// What comes, of those still in, does not compare with what was measured.
  void begin(const std::string& title, const Progress& progress) {
    progress({.what = title, .anew = true});
    for (Candidate* const candidate : still) {
      candidate->ns.clear();
      candidate->waiting.clear();
    }
  }

  std::vector<Candidate> all;
  std::vector<Candidate*> still;
};

/// Sums up what a round has shown: the best first, and those that are out last.
void sum_up(std::vector<Candidate*>& round, unsigned number) {
  double best = std::numeric_limits<double>::max();
  for (Candidate* const candidate : round) {
    candidate->tried.round = number;
    if (candidate->ns.empty()) continue;
    candidate->tried.ns_per_packet = spread_of(candidate->ns);
    candidate->tried.waiting = spread_of(candidate->waiting).median;
    if (candidate->is_in()) best = std::min(best, candidate->tried.ns_per_packet.median);
  }
  for (Candidate* const candidate : round)
    candidate->tried.behind = candidate->tried.ns_per_packet.median / best - 1;
  std::ranges::sort(round, {}, [](const Candidate* candidate) {
    return std::pair(!candidate->is_in(), candidate->tried.ns_per_packet.median);
  });
}

/// Each in turn, so many times. False where `progress` ended it.
Result<bool> take_turns(Trials& trials, const std::vector<Candidate*>& round, unsigned times,
                        double ms, const std::string& title, const Progress& progress) {
  for (unsigned time = 0; time < times; ++time) {
    std::size_t at = 0;
    for (Candidate* const candidate : round) {
      ++at;
      if (!candidate->is_in()) continue;
      const auto& [table, sharing, ageing] = candidate->tried.combination;
      const std::string who = fmt::format("{}, {}, {}", table, sharing, ageing);
      const std::string turn = times > 1 ? fmt::format(", turn {} of {}", time + 1, times) : "";
      const std::string what =
          fmt::format("{}{}, {} of {}: {}", title, turn, at, round.size(), who);
      if (!progress({.what = what, .who = who})) return false;
      if (auto ok = trials.run(*candidate, ms); !ok) return std::unexpected(ok.error());
      if (candidate->is_in()) progress.seen(who, candidate->ns.back());
    }
  }
  return true;
}

Result<Advice> advise(Trials& trials, const AdviceOptions& options, const Progress& progress) {
  const auto until = SteadyClock::now() + std::chrono::duration<double>(options.seconds);
  Advice advice;
  if (!progress("looking at the capture")) return advice;
  if (auto ok = trials.prepare(advice); !ok) return std::unexpected(ok.error());
  Candidates candidates(options.workers);
  auto& still = candidates.still;
  bool goes_on = true;
  for (unsigned number = 1; number <= kRounds && goes_on; ++number) {
    const std::string title = fmt::format("round {} of {}", number, kRounds);
    candidates.begin(title, progress);
    const auto done = take_turns(trials, still, kTurns, kTimed[number - 1], title, progress);
    if (!done) return std::unexpected(done.error());
    goes_on = *done;
    if (!goes_on && number == 1) return advice;
    if (!goes_on) break;  // what the round before has shown stands
    sum_up(still, number);
    const auto stays = [number](const Candidate* candidate) {
      return candidate->is_in() && candidate->tried.behind <= kMargin[number - 1];
    };
    still.erase(std::ranges::find_if_not(still, stays), still.end());
    if (still.empty())
      return std::unexpected(Error{"no combination works: " + candidates.all.front().tried.failed});
    if (number == kRounds) still.resize(std::min(still.size(), kFinalists));
  }
  const std::string title =
      options.seconds > 0 ? fmt::format("final, until {:g} s", options.seconds) : "final";
  if (goes_on) candidates.begin(title, progress);
  for (unsigned turn = 0; goes_on && (turn < kFinalsLeast || SteadyClock::now() < until); ++turn) {
    const auto done = take_turns(trials, still, 1, kTimed[kRounds], title, progress);
    if (!done) return std::unexpected(done.error());
    goes_on = *done;
  }
  if (goes_on) sum_up(still, kRounds + 1);
  advice.complete = goes_on;
  for (Candidate& one : candidates.all) advice.tried.push_back(std::move(one.tried));
  std::ranges::sort(advice.tried, {}, [](const Tried& one) {
    return std::tuple(!one.failed.empty(), kRounds + 1 - one.round, one.ns_per_packet.median);
  });
  return advice;
}

}  // namespace

Result<Advice> run_advice(const Capture& capture, const AdviceOptions& options,
                          const Progress& progress) {
  Trials trials(capture, options);
  return advise(trials, options, progress);
}

const Tried& Exhausted::advised() const {
  return *std::ranges::find(all, advice.best().combination, &Tried::combination);
}

Result<Exhausted> run_exhaustive(const Capture& capture, const AdviceOptions& options,
                                 const Progress& progress) {
  Exhausted exhausted;
  Trials trials(capture, options);
  auto advice = advise(trials, options, progress);
  if (!advice) return std::unexpected(advice.error());
  exhausted.advice = std::move(*advice);
  if (!exhausted.advice.complete) return exhausted;
  Candidates candidates(options.workers);
  const auto measure = [&](unsigned times, const std::string& title) {
    candidates.begin(title, progress);
    return take_turns(trials, candidates.still, times, kTimed[kRounds], title, progress);
  };
  const auto done = measure(options.repetitions, "all of them");
  if (!done) return std::unexpected(done.error());
  if (!*done) return exhausted;
  sum_up(candidates.still, 1);
  // The least of so many medians is less than what it stands for: who leads, and who was advised,
  // are measured again, side by side, for longer.
  const auto leads =
      std::ranges::stable_partition(candidates.still, [&](const Candidate* candidate) {
        return (candidate->is_in() && candidate->tried.behind <= kMargin.back()) ||
               candidate->tried.combination == exhausted.advice.best().combination;
      });
  const std::vector<Candidate*> others(leads.begin(), leads.end());
  candidates.still.erase(leads.begin(), leads.end());
  const auto decided = measure(kLeadersTurns * options.repetitions, "those that lead");
  if (!decided) return std::unexpected(decided.error());
  exhausted.complete = *decided;
  if (!exhausted.complete) return exhausted;
  sum_up(candidates.still, 2);
  candidates.still.insert(candidates.still.end(), others.begin(), others.end());
  for (Candidate* const candidate : candidates.still)
    exhausted.all.push_back(std::move(candidate->tried));
  return exhausted;
}

}  // namespace millrace::bench
