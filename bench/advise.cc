#include "bench/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <tuple>
#include <utility>

#include "bench/advise_choice.h"
#include "bench/advise_trials.h"
#include "config/config.h"
#include "conntrack/schemes.h"

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

Combination usual(unsigned workers, bool is_kernels) {
  Config config;
  config.workers = workers;
  if (is_kernels) config.live.ports.push_back({.device = {.kind = DeviceKind::af_packet}});
  return {config.table.scheme, sharing_of(config), config.ageing.scheme};
}

namespace {

using SteadyClock = std::chrono::steady_clock;

/// Most turns of each combination in a round.
constexpr unsigned kTurns = 3;
/// Time of a turn in each round and in the final, in milliseconds.
constexpr std::array<double, kRounds + 1> kTimed{15, 40, 100, 200};
constexpr std::size_t kFinalists = 5;
constexpr unsigned kFinalsLeast = 5;
/// Share of the search's time after which no second or third turns begin, for each round.
constexpr std::array<double, kRounds> kShare{0.45, 0.6, 0.75};
/// Time beyond `AdviceOptions::seconds` in which a round's first turns, and the first
/// `kFinalsLeast` turns of the final, may still begin.
constexpr std::chrono::seconds kGrace{8};
/// Combinations that lead after the exhaustive measurement are measured again, in this many times
/// as many turns.
constexpr unsigned kLeadersTurns = 2;

/// Times after which no second or later turns begin (`further`), and no turn at all, except the
/// first combination's (`anything`).
struct Until {
  SteadyClock::time_point further = SteadyClock::time_point::max();
  SteadyClock::time_point anything = SteadyClock::time_point::max();
};

/// All combinations, and the ones that have not dropped out (`still`).
struct Candidates {
  explicit Candidates(unsigned workers) {
    for (Combination& one : combinations(workers))
      all.push_back({.tried = {.combination = std::move(one)}});
    // Default combinations come first, so that they have been measured if time is up early.
    for (const bool is_kernels : {true, false}) {
      const auto is_usual = [&](const Candidate& one) {
        return one.tried.combination == usual(workers, is_kernels);
      };
      if (const auto found = std::ranges::find_if(all, is_usual); found != all.end())
        std::rotate(all.begin(), found, found + 1);
    }
    for (Candidate& one : all) still.push_back(&one);
  }

  /// Begins a round: forgets all measurements, because those of different rounds do not compare.
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

/// Returns the upper quartile of `values`, which must not be empty.
double upper_quartile(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(3 * values.size() - 1) / 4];
}

/// Computes each combination's figures of a round, and sorts the round: the fastest first, the
/// failed ones last.
void sum_up(std::vector<Candidate*>& round, unsigned number) {
  double best = std::numeric_limits<double>::max();
  for (Candidate* const candidate : round) {
    candidate->tried.round = number;
    if (candidate->ns.empty()) continue;
    candidate->tried.ns_per_packet = spread_of(candidate->ns);
    candidate->tried.mostly = upper_quartile(candidate->ns);
    candidate->tried.waiting = spread_of(candidate->waiting).median;
    if (candidate->is_in()) best = std::min(best, candidate->tried.ns_per_packet.median);
  }
  for (Candidate* const candidate : round)
    candidate->tried.behind = candidate->tried.ns_per_packet.median / best - 1;
  std::ranges::sort(round, {}, [](const Candidate* candidate) {
    return std::pair(!candidate->is_in(), candidate->tried.ns_per_packet.median);
  });
}

enum class Turns : std::uint8_t {
  done,
  late,   ///< time was up before each combination had its first turn in this round
  ended,  ///< `progress` ended the search
};

/// Measures each combination in turn, `times` times or as often as there is time for.
Result<Turns> take_turns(Trials& trials, const std::vector<Candidate*>& round, unsigned times,
                         double ms, const std::string& title, const Progress& progress,
                         const Until& until = {}) {
  for (unsigned time = 0; time < times; ++time) {
    if (time > 0 && SteadyClock::now() >= until.further) break;
    std::size_t at = 0;
    for (Candidate* const candidate : round) {
      ++at;
      if (!candidate->is_in()) continue;
      const bool is_first = candidate->ns.empty();
      if (at > 1 && SteadyClock::now() >= until.anything)
        return is_first ? Turns::late : Turns::done;
      const auto& [table, sharing, ageing] = candidate->tried.combination;
      const std::string who = fmt::format("{}, {}, {}", table, sharing, ageing);
      const std::string turn = times > 1 ? fmt::format(", turn {} of {}", time + 1, times) : "";
      const std::string what =
          fmt::format("{}{}, {} of {}: {}", title, turn, at, round.size(), who);
      if (!progress({.what = what, .who = who})) return Turns::ended;
      if (auto ok = trials.run(*candidate, ms); !ok) return std::unexpected(ok.error());
      if (candidate->is_in()) progress.seen(who, candidate->ns.back());
    }
  }
  return Turns::done;
}

/// Keeps the first `kFinalists` combinations of `still`, which must be sorted by time, and the
/// default combinations (`usual`) that are among the rest.
void keep_finalists(std::vector<Candidate*>& still, unsigned workers) {
  const auto is_usual = [workers](const Candidate* one) {
    const Combination& is = one->tried.combination;
    return is == usual(workers, false) || is == usual(workers, true);
  };
  if (still.size() <= kFinalists) return;
  const auto others = std::stable_partition(still.begin() + static_cast<std::ptrdiff_t>(kFinalists),
                                            still.end(), is_usual);
  still.erase(others, still.end());
}

/// Ends a round: combinations that failed, or are too slow, leave `still`; after the last round
/// only the finalists stay. `late`: time was up before some combinations had a turn. Errors
/// (failed): no combination works.
Result<void> end_round(Candidates& candidates, unsigned number, bool late, unsigned workers) {
  auto& still = candidates.still;
  for (Candidate* const candidate : still) {
    if (late && candidate->is_in() && candidate->ns.empty())
      candidate->tried.failed = "not tried, as the time was up: give more --seconds";
  }
  sum_up(still, number);
  const auto stays = [number](const Candidate* candidate) {
    return candidate->is_in() && candidate->tried.behind <= kMargin[number - 1];
  };
  still.erase(std::ranges::find_if_not(still, stays), still.end());
  if (still.empty())
    return std::unexpected(Error{"no combination works: " + candidates.all.front().tried.failed});
  if (number == kRounds) keep_finalists(still, workers);
  return {};
}

Result<Advice> advise(Trials& trials, const AdviceOptions& options, const Progress& progress) {
  const auto start = SteadyClock::now();
  const auto at = [&](double share) {
    const auto after = std::chrono::duration<double>(share * options.seconds);
    return start + std::chrono::duration_cast<SteadyClock::duration>(after);
  };
  const SteadyClock::time_point last = at(1) + kGrace;
  Advice advice;
  const auto prepared = trials.prepare(advice, progress);
  if (!prepared) return std::unexpected(prepared.error());
  if (!*prepared) return advice;
  Candidates candidates(options.workers);
  auto& still = candidates.still;
  Turns turns = Turns::done;
  for (unsigned number = 1; number <= kRounds && turns == Turns::done; ++number) {
    const std::string title =
        fmt::format("round {} of {}, {} combinations", number, kRounds, still.size());
    candidates.begin(title, progress);
    const auto done = take_turns(trials, still, kTurns, kTimed[number - 1], title, progress,
                                 {.further = at(kShare[number - 1]), .anything = last});
    if (!done) return std::unexpected(done.error());
    turns = *done;
    if (turns == Turns::late) advice.late_in = number;
    if (turns == Turns::ended && number == 1) return advice;
    if (turns != Turns::done && number > 1) break;  // the previous results stand
    if (auto ok = end_round(candidates, number, turns == Turns::late, options.workers); !ok)
      return std::unexpected(ok.error());
  }
  const std::string title =
      options.seconds > 0 ? fmt::format("final, until {:g} s", options.seconds) : "final";
  if (turns == Turns::done) candidates.begin(title, progress);
  for (unsigned turn = 0; turns == Turns::done; ++turn) {
    const auto now = SteadyClock::now();
    if (turn > 0 && (now >= last || (turn >= kFinalsLeast && now >= at(1)))) break;
    const auto done =
        take_turns(trials, still, 1, kTimed[kRounds], title, progress, {.anything = last});
    if (!done) return std::unexpected(done.error());
    turns = *done;
    if (turns == Turns::late) advice.late_in = kRounds + 1;
  }
  if (turns == Turns::done) sum_up(still, kRounds + 1);
  advice.complete = turns != Turns::ended;
  for (Candidate& one : candidates.all) advice.tried.push_back(std::move(one.tried));
  std::ranges::sort(advice.tried, {}, [](const Tried& one) {
    return std::tuple(!one.failed.empty(), kRounds + 1 - one.round, one.ns_per_packet.median);
  });
  recommend(advice, options.workers);
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
  const auto done = measure(options.repetitions, "all combinations");
  if (!done) return std::unexpected(done.error());
  if (*done != Turns::done) return exhausted;
  sum_up(candidates.still, 1);
  // The least of many medians is too small by chance. The leading combinations and the advised one
  // are therefore measured again, in turn and for longer.
  const auto leads =
      std::ranges::stable_partition(candidates.still, [&](const Candidate* candidate) {
        return (candidate->is_in() && candidate->tried.behind <= kMargin.back()) ||
               candidate->tried.combination == exhausted.advice.best().combination;
      });
  const std::vector<Candidate*> others(leads.begin(), leads.end());
  candidates.still.erase(leads.begin(), leads.end());
  const auto decided = measure(kLeadersTurns * options.repetitions, "leading combinations");
  if (!decided) return std::unexpected(decided.error());
  exhausted.complete = *decided == Turns::done;
  if (!exhausted.complete) return exhausted;
  sum_up(candidates.still, 2);
  candidates.still.insert(candidates.still.end(), others.begin(), others.end());
  for (Candidate* const candidate : candidates.still)
    exhausted.all.push_back(std::move(candidate->tried));
  return exhausted;
}

}  // namespace millrace::bench
