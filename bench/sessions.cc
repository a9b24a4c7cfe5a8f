#include "sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "bench/contender_of.h"
#include "bench/limit.h"
#include "conntrack/table/chained.h"
#include "conntrack/table/dhash_sessions.h"
#include "worker/threads.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::duration<double, std::nano>;
using Table = Contender<KeyV4>;

/// Packets between two reads of the clock while a lookup's time is estimated; also the least number
/// of packets of a trial.
constexpr std::size_t kProbe = 1000;

/// Average chain, in records and rounded down, up to which a table is filled anew for each trial.
constexpr std::size_t kShortChain = 50;

/// Returns a capacity a fifth above the number of sessions, so that `dhash` has ten in a bucket, as
/// in the paper.
std::size_t capacity_for(std::size_t sessions) { return (6 * sessions + 4) / 5; }

/// A table, and the number of cores, each of which has such a table.
struct Candidate {
  std::string table;                   ///< name in the results
  std::optional<std::size_t> buckets;  ///< N of `chained/N`
  unsigned cores = 0;

  auto operator<=>(const Candidate&) const = default;
};

struct Samples {
  std::vector<double> mpps;
  std::vector<double> ns_per_lookup;
  std::size_t live = 0;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Pages pages = Pages::huge;
};

/// A core's own table, and its sessions in the order in which their packets come, over and over.
struct Core {
  std::unique_ptr<Table> table;
  std::vector<KeyV4> stream;
  std::size_t next = 0;
  SteadyClock::time_point began;
  SteadyClock::time_point ended;
  std::size_t packets = 0;  ///< from `began` to `ended`

  /// Looks up the sessions of the next `count` packets and updates their records. Returns how many
  /// were found.
  std::size_t pass(std::size_t count, unsigned burst);
  double ns() const { return Nanoseconds(ended - began).count(); }
  double ns_per_lookup() const { return ns() / static_cast<double>(packets); }
};

std::size_t Core::pass(std::size_t count, unsigned burst) {
  std::size_t found = 0;
  while (count > 0) {
    const auto keys = std::span<const KeyV4>(stream).subspan(next);
    const auto now = keys.first(std::min(count, keys.size()));
    found += table->touch(now, burst);
    next = (next + now.size()) % stream.size();
    count -= now.size();
  }
  return found;
}

/// Calls `work(core, n)` for each core on a thread of its own. Errors: the first one of `work`;
/// failed if a thread could not be started.
template <class Work>
Result<void> on_cores(std::vector<Core>& cores, Work&& work) {
  std::vector<Result<void>> done(cores.size());
  const auto count = static_cast<unsigned>(cores.size());
  if (auto ran = on_threads(count, [&](unsigned n) { done[n] = work(cores[n], n); }); !ran)
    return ran;
  for (auto& each : done) {
    if (!each) return std::move(each);
  }
  return {};
}

/// Measures all contenders with one number of sessions, in turn.
class Experiment {
 public:
  Experiment(const SessionsOptions& options, std::size_t sessions,
             const std::vector<Candidate>& candidates)
      : options_(options),
        sessions_(site_sessions<KeyV4>(sessions, options.seed)),
        candidates_(candidates) {
    std::ranges::shuffle(sessions_, std::mt19937_64(options.seed));
  }

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    const auto title = [this](const Candidate& of) {
      return fmt::format("{} sessions, {}, {} {}", sessions_.size(), of.table, of.cores,
                         of.cores == 1 ? "core" : "cores");
    };
    return in_turn(options_, candidates_, progress, title,
                   [this](const Candidate& candidate) { return measure(candidate); });
  }

  void report(SessionsReport& report) {
    for (const Candidate& candidate : candidates_) {
      Samples& of = samples_[candidate];
      report.results.push_back({candidate.table, candidate.buckets, sessions_.size(),
                                candidate.cores, of.live, spread_of(of.mpps),
                                spread_of(of.ns_per_lookup), of.index_bytes, of.record_bytes,
                                of.pages});
    }
  }

 private:
  Result<double> measure(const Candidate& candidate);  // Mpps
  bool takes_long_to_fill(const Candidate& candidate) const {
    return candidate.buckets && sessions_.size() > kShortChain * *candidate.buckets;
  }
  Result<void> prepare(const Candidate& candidate, std::vector<Core>& cores) const;
  Result<void> make(const Candidate& candidate, unsigned n, Core& core) const;
  Result<void> fill(const Candidate& candidate, Core& core, std::span<const KeyV4> share) const;
  Result<void> check(const Candidate& candidate, Core& core) const;
  Result<void> probe(const Candidate& candidate, Core& core) const;
  Result<void> time(const Candidate& candidate, Core& core, std::size_t packets) const;
  std::size_t packets_in_budget(const std::vector<Core>& cores) const;
  void note(std::span<const Core> cores, Samples& samples) const;

  const SessionsOptions& options_;
  std::vector<KeyV4> sessions_;
  const std::vector<Candidate>& candidates_;
  std::map<Candidate, Samples> samples_;
  std::map<Candidate, std::vector<Core>> kept_;  // tables that take long to fill
};

std::unexpected<Error> wrong(const Candidate& candidate, std::string_view what, std::size_t got,
                             std::size_t expected) {
  return std::unexpected(Error{fmt::format("{} gives wrong results: {}: {} instead of {}",
                                           candidate.table, what, got, expected)});
}

Result<double> Experiment::measure(const Candidate& candidate) {
  std::vector<Core> fresh;
  std::vector<Core>& cores = takes_long_to_fill(candidate) ? kept_[candidate] : fresh;
  Samples& samples = samples_[candidate];
  if (cores.empty()) {
    cores.resize(candidate.cores);
    if (auto ok = prepare(candidate, cores); !ok) return std::unexpected(ok.error());
  }
  const auto warm_up = [&](Core& core, unsigned) { return probe(candidate, core); };
  if (auto ok = on_cores(cores, warm_up); !ok) return std::unexpected(ok.error());
  const std::size_t packets = packets_in_budget(cores);
  const auto run = [&](Core& core, unsigned) { return time(candidate, core, packets); };
  if (auto ok = on_cores(cores, run); !ok) return std::unexpected(ok.error());
  note(cores, samples);
  return samples.mpps.back();
}

/// Makes and fills the tables. In the candidate's first trial, also checks them.
Result<void> Experiment::prepare(const Candidate& candidate, std::vector<Core>& cores) const {
  const bool first = samples_.at(candidate).mpps.empty();
  return on_cores(cores, [&](Core& core, unsigned n) -> Result<void> {
    if (auto ok = make(candidate, n, core); !ok) return ok;
    return first ? check(candidate, core) : Result<void>{};
  });
}

Result<std::unique_ptr<Table>> make_table(const Candidate& candidate, unsigned n,
                                          const TableConfig& config) {
  if (!candidate.buckets) {
    const auto& all = entrants();
    return std::ranges::find(all, candidate.table, &Entrant::name)->make<KeyV4>()(config);
  }
  const std::size_t from = *candidate.buckets * n / candidate.cores;
  const std::size_t to = *candidate.buckets * (n + 1) / candidate.cores;
  auto table = Chained<KeyV4>::create(config, std::max<std::size_t>(to - from, 1));
  if (!table) return std::unexpected(table.error());
  return std::make_unique<ContenderOf<Chained<KeyV4>, KeyV4>>(std::move(*table));
}

Result<void> Experiment::make(const Candidate& candidate, unsigned n, Core& core) const {
  const std::size_t from = sessions_.size() * n / candidate.cores;
  const std::size_t to = sessions_.size() * (n + 1) / candidate.cores;
  const auto share = std::span(sessions_).subspan(from, to - from);
  auto table = make_table(candidate, n,
                          {.capacity = capacity_for(share.size()),
                           .state_bytes = kStateBytes<KeyV4>,
                           .pages = options_.pages,
                           .secret = Secret::from_seed(options_.seed + n)});
  if (!table) {
    return std::unexpected(
        Error{fmt::format("{}: {}", candidate.table, table.error().message), table.error().kind});
  }
  core.table = std::move(*table);
  // Packets come in another order than sessions began, so that records are not visited in the order
  // of memory.
  core.stream.assign(share.begin(), share.end());
  std::ranges::shuffle(core.stream, std::mt19937_64(options_.seed + n + 1));
  return fill(candidate, core, share);
}

/// Inserts the sessions, each burst after a lookup of the burst: lookups of a burst follow their
/// chains in parallel and so fetch the chains into the cache, whereas insertions follow one chain
/// at a time. Long chains fill faster this way.
Result<void> Experiment::fill(const Candidate& candidate, Core& core,
                              std::span<const KeyV4> share) const {
  constexpr unsigned kBurst = 32;
  std::size_t found = 0;
  std::size_t inserted = 0;
  for (std::size_t i = 0; i < share.size(); i += kBurst) {
    const auto burst = share.subspan(i, std::min<std::size_t>(kBurst, share.size() - i));
    found += core.table->find(burst, kBurst);
    inserted += core.table->insert(burst, kBurst);
  }
  if (found != 0) return wrong(candidate, "sessions found before they began", found, 0);
  if (inserted != share.size())
    return wrong(candidate, "sessions inserted", inserted, share.size());
  return {};
}

/// Checks that each session is present, under its own key.
Result<void> Experiment::check(const Candidate& candidate, Core& core) const {
  const auto ids = core.table->ids(core.stream);
  std::size_t right = 0;
  for (std::size_t i = 0; i < ids.size(); ++i)
    right += ids[i] != ConnId::none && core.table->key(ids[i]) == core.stream[i];
  if (right != ids.size()) return wrong(candidate, "sessions found", right, ids.size());
  if (core.table->size() != ids.size())
    return wrong(candidate, "entries", core.table->size(), ids.size());
  return {};
}

/// Estimates the time of a lookup, and warms the caches.
Result<void> Experiment::probe(const Candidate& candidate, Core& core) const {
  const double enough_ns = options_.budget_ms * 1e6 / 40;
  core.began = core.ended = SteadyClock::now();
  for (core.packets = 0; core.packets == 0 || core.ns() < enough_ns; core.packets += kProbe) {
    const std::size_t found = core.pass(kProbe, options_.burst);
    if (found != kProbe) return wrong(candidate, "sessions found", found, kProbe);
    core.ended = SteadyClock::now();
  }
  return {};
}

Result<void> Experiment::time(const Candidate& candidate, Core& core, std::size_t packets) const {
  core.packets = packets;
  core.began = SteadyClock::now();
  const std::size_t found = core.pass(packets, options_.burst);
  core.ended = SteadyClock::now();
  return found == packets ? Result<void>{} : wrong(candidate, "sessions found", found, packets);
}

/// Returns the packets for each core: as many as the slowest core passes in the budget, in whole
/// rounds of the last core's sessions if a round fits; at least `kProbe`.
std::size_t Experiment::packets_in_budget(const std::vector<Core>& cores) const {
  double slowest_ns = 0;
  for (const Core& core : cores) slowest_ns = std::max(slowest_ns, core.ns_per_lookup());
  const auto fit = static_cast<std::size_t>(options_.budget_ms * 1e6 / slowest_ns);
  const std::size_t round = cores.back().stream.size();
  return fit < round ? std::max(fit, kProbe) : fit / round * round;
}

void Experiment::note(std::span<const Core> cores, Samples& samples) const {
  const auto began = std::ranges::min_element(cores, {}, &Core::began)->began;
  const auto ended = std::ranges::max_element(cores, {}, &Core::ended)->ended;
  double ns = 0;
  double packets = 0;
  samples.live = samples.index_bytes = samples.record_bytes = 0;
  for (const Core& core : cores) {
    ns += core.ns();
    packets += static_cast<double>(core.packets);
    const std::size_t index_bytes = core.table->index_bytes();
    const std::size_t record_bytes = core.table->record_bytes();
    samples.live += core.table->size();
    samples.index_bytes += index_bytes;
    samples.record_bytes += record_bytes;
    samples.pages = std::max(samples.pages,
                             pages_under(std::max(index_bytes, record_bytes), core.table->pages()));
  }
  samples.mpps.push_back(1000 * packets / Nanoseconds(ended - began).count());
  samples.ns_per_lookup.push_back(ns / packets);
}

/// Returns the paper's tables, and `chained` and `race`, as far as the build has them.
std::vector<std::string> default_tables() {
  constexpr std::array<std::string_view, 7> kTables{
      "dhash", "dhash-plain", "dhash-xor", "dhash-crc-xor", "dhash-xor-crc", "chained", "race"};
  std::vector<std::string> all;
  for (const auto name : kTables) {
    if (std::ranges::count(entrants(), name, &Entrant::name) != 0) all.emplace_back(name);
  }
  return all;
}

std::vector<Candidate> candidates_of(const SessionsOptions& options) {
  std::vector<Candidate> all;
  for (const unsigned cores : options.cores) {
    for (const auto& table : options.tables.empty() ? default_tables() : options.tables)
      all.push_back({table, std::nullopt, cores});
    for (const std::size_t buckets : options.buckets)
      all.push_back({fmt::format("chained/{}", buckets), buckets, cores});
  }
  return all;
}

Result<void> check_chains(const SessionsOptions& options) {
  const std::size_t most = std::ranges::max(options.sessions);
  const std::size_t least = (most + kLongestChain - 1) / kLongestChain;
  for (const std::size_t buckets : options.buckets) {
    if (buckets >= least) continue;
    return std::unexpected(
        Error{fmt::format(
                  "chained/{} would have chains of {} records or more on average with {} sessions; "
                  "{} is the limit: give {} buckets or more",
                  buckets, most / buckets, most, kLongestChain, least),
              Error::Kind::usage});
  }
  return {};
}

template <bool kMajorLocation>
Result<void> add_signatures(const SessionsOptions& options, std::span<const KeyV4> sessions,
                            SessionsReport& report) {
  constexpr std::array<std::string_view, 4> kNames{DHashXor<KeyV4>::kName,
                                                   DHashCrcXor<KeyV4>::kName,
                                                   DHashXorCrc<KeyV4>::kName, DHash<KeyV4>::kName};
  const auto all = compare_signatures<KeyV4, kMajorLocation>(sessions, sessions.size() / 10,
                                                             Secret::from_seed(options.seed));
  if (!all) return std::unexpected(all.error());
  for (std::size_t i = 0; i < all->size(); ++i) {
    const DHashStatistics& counted = (*all)[i].statistics;
    if (counted.hits != counted.lookups) {
      return wrong({std::string((*all)[i].name), std::nullopt, 1}, "sessions found", counted.hits,
                   counted.lookups);
    }
    report.signatures.push_back({kNames[i], kMajorLocation, counted});
  }
  return {};
}

/// Returns false if `progress` ended the measurement.
Result<bool> run_signatures(const SessionsOptions& options, const Progress& progress,
                            SessionsReport& report) {
  const auto sessions = site_sessions<KeyV4>(options.signature_sessions, options.seed);
  if (!progress("signatures with major location")) return false;
  if (auto ok = add_signatures<true>(options, sessions, report); !ok)
    return std::unexpected(ok.error());
  if (!progress("signatures without major location")) return false;
  if (auto ok = add_signatures<false>(options, sessions, report); !ok)
    return std::unexpected(ok.error());
  return true;
}

}  // namespace

Result<SessionsReport> run_sessions(const SessionsOptions& options, const Progress& progress) {
  SessionsReport report;
  if (auto ok = check_chains(options); !ok) return std::unexpected(ok.error());
  const auto candidates = candidates_of(options);
  std::size_t to_come = options.sessions.size() * candidates.size() * options.repetitions;
  for (const std::size_t sessions : options.sessions) {
    const std::string what = fmt::format("{} sessions: making the keys", sessions);
    if (!progress({.what = what, .to_come = to_come})) return report;
    Experiment experiment(options, sessions, candidates);
    auto whole = experiment.run(progress);
    if (!whole) return std::unexpected(whole.error());
    if (!*whole) return report;
    experiment.report(report);
    to_come -= candidates.size() * options.repetitions;
  }
  auto whole = run_signatures(options, progress, report);
  if (!whole) return std::unexpected(whole.error());
  report.complete = *whole;
  return report;
}

}  // namespace millrace::bench
