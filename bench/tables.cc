#include "tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "bench/limit.h"
#include "bench/workload.h"

namespace millrace::bench {
namespace {

constexpr std::array<std::string_view, 7> kOperations{"fill",   "touch",  "hit", "miss",
                                                      "insert", "delete", "mix"};

/// Counts the trials, and reports each to `Progress`.
class Steps {
 public:
  Steps(std::size_t trials, const Progress& progress) : to_come_(trials), progress_(progress) {}

  bool next(std::string_view what, std::string_view who = {}) {
    what_ = what;
    who_ = who;
    return progress_({.what = what_, .who = who_, .to_come = to_come_});
  }
  bool phase(std::string_view name) const {
    const std::string what = fmt::format("{}: {}", what_, name);
    return progress_({.what = what, .who = who_, .to_come = to_come_});
  }
  void seen(double touch_ns) {
    --to_come_;
    progress_.seen(who_, touch_ns);
  }

 private:
  std::size_t to_come_;
  const Progress& progress_;
  std::string what_;
  std::string who_;
};

/// Returns the time of a touch in the last trial, with bursts of 32 or, if there are none, of the
/// nearest size.
double last_touch_ns(const Samples& of) {
  const auto distance = [](const auto& sample) {
    const auto& [operation, burst] = sample.first;
    return std::pair(operation != "touch", std::abs(static_cast<int>(burst) - 32));
  };
  return std::ranges::min_element(of.ns, {}, distance)->second.back();
}

/// Returns the fetches that an operation on that table cannot avoid.
Fetches needed(std::string_view operation, const Entrant& entrant, const Samples& of) {
  // Sizes are rounded, so that tables of nearly the same size share a measurement.
  const auto rounded = [](std::size_t bytes) {
    const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 4096);
    return (bytes + step - 1) / step * step;
  };
  Fetches fetches{rounded(of.index_bytes), Access::read, rounded(of.record_bytes), Access::none};
  if (operation == "touch" || operation == "mix") fetches.records = Access::update;
  const bool adds = operation == "insert" || operation == "fill";
  if (adds || operation == "delete") fetches.index = Access::update;
  if (adds) fetches.records = Access::update;
  const bool compares = operation == "hit" || operation == "delete";
  if (compares && entrant.key_in_record) fetches.records = Access::read;
  return fetches;
}

/// Measures one group: all its tables in turn, in all repetitions.
template <class K>
class Experiment {
 public:
  Experiment(const TablesOptions& options, const TablesGroup& group, Steps& steps)
      : options_(options), group_(group), steps_(steps), samples_(group.entrants.size()) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run();
  void report(TablesResult& result) const;

 private:
  const Workload<K>& workload(const Entrant& entrant);
  std::string title(const Entrant& entrant) const;
  Result<void> measure_limits();

  const TablesOptions& options_;
  const TablesGroup& group_;
  Steps& steps_;
  std::vector<Samples> samples_;  // in the order of group_.entrants
  std::vector<std::map<std::string_view, std::vector<double>>> limit_ns_{samples_.size()};
  std::unique_ptr<Workload<K>> workload_;
  std::size_t workload_live_ = 0;
};

template <class K>
const Workload<K>& Experiment<K>::workload(const Entrant& entrant) {
  const std::size_t live = group_.at.live(entrant);
  if (!workload_ || workload_live_ != live) {
    workload_.reset();
    workload_ = std::make_unique<Workload<K>>(
        live, group_.at.load ? 0 : group_.at.promised(entrant), options_.seed);
    workload_live_ = live;
  }
  return *workload_;
}

template <class K>
std::string Experiment<K>::title(const Entrant& entrant) const {
  return fmt::format("{}, 2^{} slots, {}, {}-byte keys", entrant.name, group_.at.bits,
                     group_.at.load ? fmt::format("load {}", *group_.at.load) : "highest load",
                     sizeof(K));
}

template <class K>
Result<bool> Experiment<K>::run() {
  const Progress phase([this](std::string_view name) { return steps_.phase(name); });
  for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
    const TrialOptions options{options_.bursts, options_.pages, options_.seed + repetition};
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const Entrant& entrant = *group_.entrants[i];
      const std::string who = title(entrant);
      if (!steps_.next(
              fmt::format("repetition {} of {}: {}", repetition + 1, options_.repetitions, who),
              who))
        return false;
      Trial<K> trial(entrant, options, group_.at, workload(entrant), samples_[i]);
      if (auto whole = trial.run(phase); !whole || !*whole) return whole;
      steps_.seen(last_touch_ns(samples_[i]));
    }
    if (!steps_.phase("then the machine's limit")) return false;
    if (auto ok = measure_limits(); !ok) return std::unexpected(ok.error());
  }
  return true;
}

template <class K>
Result<void> Experiment<K>::measure_limits() {
  std::map<Fetches, double> measured;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  const auto each = [&](auto&& use) {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      for (const std::string_view operation : kOperations) {
        use(limit_ns_[i][operation], needed(operation, *group_.entrants[i], samples_[i]));
      }
    }
  };
  each([&](std::vector<double>&, const Fetches& fetches) {
    index_bytes = std::max(index_bytes, fetches.index_bytes);
    record_bytes = std::max(record_bytes, fetches.record_bytes);
  });
  auto limit = Limit::create(index_bytes, record_bytes, options_.pages);
  if (!limit) return std::unexpected(limit.error());
  each([&](std::vector<double>& ns, const Fetches& fetches) {
    auto [at, fresh] = measured.try_emplace(fetches, 0);
    if (fresh) at->second = limit->independent_ns(fetches);
    ns.push_back(at->second);
  });
  return {};
}

template <class K>
void Experiment<K>::report(TablesResult& result) const {
  const Case& at = group_.at;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const Entrant& entrant = *group_.entrants[i];
    const Samples& of = samples_[i];
    const double load = at.load_of(entrant);
    const auto live = static_cast<double>(at.live(entrant));
    for (const auto& [what, ns] : of.ns) {
      const auto& [operation, burst] = what;
      result.operations.push_back(
          {.table = entrant.name,
           .key_bytes = sizeof(K),
           .bits = at.bits,
           .live = at.live(entrant),
           .at_maximum = !at.load.has_value(),
           .load = load,
           .operation = operation,
           .burst = burst,
           .ns = spread_of(ns),
           .limit_ns = spread_of(limit_ns_[i].at(operation)).median,
           .bytes_per_entry = static_cast<double>(of.index_bytes + of.record_bytes) / live,
           .index_per_entry = static_cast<double>(of.index_bytes) / live,
           .pages = of.pages});
    }
    result.insertions.push_back({entrant.name, sizeof(K), at.bits, load, of.insertion_ns.size(),
                                 percentiles_of(of.insertion_ns, {50, 90, 99, 99.9, 99.99, 100})});
    if (at.load) continue;
    const std::size_t beyond = at.promised(entrant) * 6 / 5 - at.live(entrant);
    result.overloads.push_back({entrant.name, sizeof(K), at.bits, at.promised(entrant),
                                beyond * options_.repetitions, of.refused_below, of.refused_beyond,
                                spread_of(of.beyond_ns)});
  }
  ++result.groups;
}

Result<void> measure_machine(const TablesOptions& options, unsigned bits, TablesResult& result) {
  const std::size_t records = (std::size_t{1} << bits) * 64;
  const std::size_t index = records / 28;  // race has a line for every 28 slots
  for (const Pages pages : {options.pages, Pages::small}) {
    auto limit = Limit::create(index, records, pages);
    if (!limit) return std::unexpected(limit.error());
    std::array<std::vector<double>, 5> ns;
    for (unsigned repetition = 0; repetition < options.repetitions; ++repetition) {
      using enum Access;
      ns[0].push_back(limit->dependent_ns(records));
      ns[1].push_back(limit->independent_ns({index, none, records, read}));
      ns[2].push_back(limit->independent_ns({index, none, records, update}));
      ns[3].push_back(limit->independent_ns({index, read, records, read}));
      ns[4].push_back(limit->independent_ns({index, read, records, update}));
    }
    result.limits.push_back({bits, limit->pages(), index, records, spread_of(ns[0]),
                             spread_of(ns[1]), spread_of(ns[2]), spread_of(ns[3]),
                             spread_of(ns[4])});
    if (limit->pages() == Pages::small) break;  // small pages have been measured now
  }
  return {};
}

template <class K>
Result<bool> measure(const TablesPlan& plan, const TablesGroup& group, Steps& steps,
                     TablesResult& result) {
  Experiment<K> experiment(plan.options, group, steps);
  auto whole = experiment.run();
  if (whole && *whole) experiment.report(result);
  return whole;
}

/// Measures a group and, before the first group of a size, the machine's limit for that size.
Result<bool> measure_group(const TablesPlan& plan, const TablesGroup& group, Steps& steps,
                           TablesResult& result) {
  const unsigned bits = group.at.bits;
  if (result.limits.empty() || result.limits.back().bits != bits) {
    if (!steps.next(fmt::format("2^{} slots: the machine's limit", bits))) return false;
    if (auto ok = measure_machine(plan.options, bits, result); !ok)
      return std::unexpected(ok.error());
  }
  return group.key_bytes == sizeof(KeyV4) ? measure<KeyV4>(plan, group, steps, result)
                                          : measure<KeyV6>(plan, group, steps, result);
}

}  // namespace

Result<void> run_tables(const TablesPlan& plan, const Progress& progress, TablesResult& result) {
  Steps steps(plan.trials(), progress);
  for (const TablesGroup& group : plan.groups) {
    const auto failed = [&group](const Error& error) {
      return std::unexpected(
          Error{fmt::format("2^{} slots: {}", group.at.bits, error.message), error.kind});
    };
    try {
      auto whole = measure_group(plan, group, steps, result);
      if (!whole) return failed(whole.error());
      if (!*whole) break;
    } catch (const std::bad_alloc&) {
      return failed({"no memory left: lower the capacity or free memory"});
    }
  }
  return {};
}

}  // namespace millrace::bench
