#include "tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "bench/contender.h"
#include "bench/limit.h"
#include "bench/workload.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Progress = std::function<void(const std::string&)>;

template <class Run>
double ns_each(std::size_t count, Run&& run) {
  const auto start = SteadyClock::now();
  run();
  return std::chrono::duration<double, std::nano>(SteadyClock::now() - start).count() /
         static_cast<double>(count);
}

/// What one table was measured for, over all repetitions.
struct Measured {
  std::map<std::pair<std::string_view, unsigned>, std::vector<double>> ns;  // operation, burst
  std::map<std::string_view, std::vector<double>> limit_ns;
  std::vector<double> fill_ns;
  std::vector<float> insertion_ns;
  std::vector<double> beyond_ns;
  std::size_t refused_below = 0;
  std::size_t refused_beyond = 0;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Pages pages = Pages::huge;
};

/// One load of one size: a table's own, or the same for all.
struct Case {
  unsigned bits = 0;
  std::optional<double> load;  // none: the table's maximum

  std::size_t slots() const { return std::size_t{1} << bits; }
  double load_of(const Entrant& entrant) const { return load.value_or(entrant.max_load); }
  std::size_t promised(const Entrant& entrant) const {
    return static_cast<std::size_t>(entrant.max_load * static_cast<double>(slots()));
  }
  std::size_t live(const Entrant& entrant) const {
    return static_cast<std::size_t>(load_of(entrant) * static_cast<double>(slots()));
  }
  bool suits(const Entrant& entrant) const { return load_of(entrant) <= entrant.max_load; }
};

/// One table's turn in one repetition.
template <class K>
class Turn {
 public:
  Turn(const Entrant& entrant, const TablesOptions& options, const Case& at,
       const Workload<K>& workload, Measured& record)
      : entrant_(entrant), options_(options), case_(at), work_(workload), record_(record) {}

  Result<void> run(unsigned repetition);

 private:
  Result<void> make(unsigned repetition, double headroom);
  Result<void> fill();
  Result<void> check_answers();
  Result<void> time_lookups();
  Result<void> time_changes();
  Result<void> time_mix();
  Result<void> time_past_the_promise(unsigned repetition);
  std::unexpected<Error> wrong(std::string_view what, std::size_t got, std::size_t expected) const {
    return std::unexpected(
        Error{fmt::format("{} answers wrongly: {}: {}, and the reference says {}", entrant_.name,
                          what, got, expected)});
  }
  std::size_t refused() const { return work_.second.size() - table_->size(); }

  const Entrant& entrant_;
  const TablesOptions& options_;
  const Case& case_;
  const Workload<K>& work_;
  Measured& record_;
  std::unique_ptr<Contender<K>> table_;
  std::vector<bool> present_;  // of work_.second
};

template <class K>
Result<void> Turn<K>::make(unsigned repetition, double headroom) {
  auto table = entrant_.make<K>()({.capacity = case_.promised(entrant_),
                                   .state_bytes = kStateBytes<K>,
                                   .pages = options_.pages,
                                   .secret = Secret::from_seed(options_.seed + repetition),
                                   .headroom = headroom});
  if (!table) {
    return std::unexpected(
        Error{fmt::format("{}: {}", entrant_.name, table.error().message), table.error().kind});
  }
  table_ = std::move(*table);
  return {};
}

template <class K>
Result<void> Turn<K>::run(unsigned repetition) {
  if (auto ok = make(repetition, 0); !ok) return ok;
  if (auto ok = fill(); !ok) return ok;
  if (auto ok = check_answers(); !ok) return ok;
  if (auto ok = time_lookups(); !ok) return ok;
  if (auto ok = time_changes(); !ok) return ok;
  if (auto ok = time_mix(); !ok) return ok;
  const auto singles = table_->insertion_ns(work_.coming, work_.leaving);
  record_.insertion_ns.insert(record_.insertion_ns.end(), singles.begin(), singles.end());
  if (repetition == 0) {
    if (auto ok = table_->check_invariants(); !ok) return ok;
  }
  record_.index_bytes = table_->index_bytes();
  record_.record_bytes = table_->record_bytes();
  record_.pages = std::max(record_.pages, table_->pages());
  return case_.load ? Result<void>{} : time_past_the_promise(repetition);
}

template <class K>
Result<void> Turn<K>::fill() {
  std::size_t in = 0;
  record_.fill_ns.push_back(
      ns_each(work_.filling.size(), [&] { in = table_->insert(work_.filling, 32); }));
  if (in != table_->size()) return wrong("entries after filling", table_->size(), in);
  record_.refused_below += work_.filling.size() - in;
  const std::size_t live = table_->churn(work_.first, work_.second);
  if (live != table_->size()) return wrong("entries after churn", table_->size(), live);
  record_.refused_below += refused();
  return {};
}

/// The reference: what was inserted and not refused is there, once, under its own key; nothing
/// else.
template <class K>
Result<void> Turn<K>::check_answers() {
  const auto ids = table_->ids(work_.second);
  std::vector<bool> taken;
  present_.assign(ids.size(), false);
  std::size_t found = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == ConnId::none) continue;
    const std::size_t id = index(ids[i]);
    if (id >= taken.size()) taken.resize(std::max(id + 1, 2 * taken.size()), false);
    if (taken[id]) return wrong("keys of one id", 2, 1);
    if (table_->key(ids[i]) != work_.second[i]) return wrong("records with another key", 1, 0);
    taken[id] = present_[i] = true;
    ++found;
  }
  if (found != table_->size()) return wrong("keys found", found, table_->size());
  if (refused() > work_.second.size() / 100)
    return wrong("refused below its promise", refused(), 0);
  const std::size_t gone = table_->find(work_.first, 32);
  if (gone != 0) return wrong("erased keys found", gone, 0);
  return {};
}

template <class K>
Result<void> Turn<K>::time_lookups() {
  constexpr std::size_t kStream = Workload<K>::kStream;
  std::size_t next = 0;
  for (const unsigned burst : options_.bursts) {
    const auto time = [&](std::string_view operation, std::span<const K> keys, std::size_t right,
                          auto run) -> Result<void> {
      std::size_t found = 0;
      const double ns = ns_each(keys.size(), [&] { found = run(keys); });
      record_.ns[{operation, burst}].push_back(ns);
      if (found != right) return wrong(operation, found, right);
      return {};
    };
    const auto find = [&](std::span<const K> keys) { return table_->find(keys, burst); };
    const auto touch = [&](std::span<const K> keys) { return table_->touch(keys, burst); };
    for (const std::string_view operation : {"touch", "hit"}) {
      const std::size_t from = next++ % Workload<K>::kStreams * kStream;
      const auto keys = std::span(work_.hits).subspan(from, kStream);
      std::size_t expected = 0;
      for (std::size_t i = 0; i < kStream; ++i) expected += present_[work_.hit_of[from + i]];
      auto ok = operation == "touch" ? time(operation, keys, expected, touch)
                                     : time(operation, keys, expected, find);
      if (!ok) return ok;
    }
    if (auto ok = time("miss", work_.misses, 0, find); !ok) return ok;
  }
  return {};
}

/// Deletions and insertions, in turns of a hundredth of the table, so that the load stays. An odd
/// number of rounds, so that `third` has taken the place of those that it is swapped with.
template <class K>
Result<void> Turn<K>::time_changes() {
  constexpr std::size_t kChanges = std::size_t{1} << 17;
  const std::size_t step = std::clamp<std::size_t>(work_.second.size() / 100, 32, 4096);
  std::span<const K> inside = work_.swapped();
  std::span<const K> outside = work_.third;
  const std::size_t rounds = kChanges / outside.size() | 1;
  const std::size_t changes = rounds * outside.size();
  double erase_ns = 0;
  double insert_ns = 0;
  std::size_t erased = 0;
  std::size_t inserted = 0;
  const std::size_t missing = refused();
  const std::size_t before = table_->size();
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < inside.size(); i += step) {
      const std::size_t count = std::min(step, inside.size() - i);
      const auto erase = [&] { erased += table_->erase(inside.subspan(i, count), 32); };
      const auto insert = [&] { inserted += table_->insert(outside.subspan(i, count), 32); };
      erase_ns += ns_each(1, erase);
      insert_ns += ns_each(1, insert);
    }
    std::swap(inside, outside);
  }
  record_.ns[{"delete", 32}].push_back(erase_ns / static_cast<double>(changes));
  record_.ns[{"insert", 32}].push_back(insert_ns / static_cast<double>(changes));
  if (table_->size() != before - erased + inserted)
    return wrong("entries after changes", table_->size(), before - erased + inserted);
  if (missing == 0 && refused() == 0) {
    if (erased != changes) return wrong("erased", erased, changes);
    if (inserted != changes) return wrong("inserted", inserted, changes);
  }
  return {};
}

template <class K>
Result<void> Turn<K>::time_mix() {
  const bool all_there = refused() == 0;
  std::pair<std::size_t, std::size_t> did;
  record_.ns[{"mix", 32}].push_back(
      ns_each(work_.mix.lookups.size(), [&] { did = table_->mix(work_.mix); }));
  const std::size_t misses = work_.mix.lookups.size() - work_.mixed_hits;
  if (!all_there || case_.load_of(entrant_) > 0.75) return {};  // single ones may be refused
  if (did.first != work_.mixed_hits) return wrong("touched", did.first, work_.mixed_hits);
  if (did.second != misses) return wrong("inserted in the mix", did.second, misses);
  if (refused() != 0) return wrong("entries after the mix", table_->size(), work_.second.size());
  return {};
}

/// What the table says to a fifth more than it promises, with room for a quarter.
template <class K>
Result<void> Turn<K>::time_past_the_promise(unsigned repetition) {
  table_.reset();
  if (auto ok = make(repetition, 0.25); !ok) return ok;
  table_->insert(work_.filling, 32);
  std::size_t in = 0;
  record_.beyond_ns.push_back(
      ns_each(work_.beyond.size(), [&] { in = table_->insert(work_.beyond, 32); }));
  record_.refused_beyond += work_.beyond.size() - in;
  return {};
}

/// What an operation has to fetch at least.
Fetches needed(std::string_view operation, const Entrant& entrant, const Measured& record) {
  // Sizes are rounded, so that tables of nearly one size share one measurement.
  const auto rounded = [](std::size_t bytes) {
    const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 4096);
    return (bytes + step - 1) / step * step;
  };
  Fetches fetches{rounded(record.index_bytes), Access::read, rounded(record.record_bytes),
                  Access::none};
  if (operation == "touch" || operation == "mix") fetches.records = Access::update;
  if (operation == "insert" || operation == "delete") fetches.index = Access::update;
  if (operation == "insert") fetches.records = Access::update;
  const bool compares = operation == "hit" || operation == "delete";
  if (compares && entrant.key_in_record) fetches.records = Access::read;
  return fetches;
}

/// One case, all tables in turn, all repetitions.
template <class K>
class Contest {
 public:
  Contest(const TablesOptions& options, const Case& at, std::vector<const Entrant*> entrants,
          const Progress& progress)
      : options_(options), case_(at), entrants_(std::move(entrants)), progress_(progress) {
    std::erase_if(entrants_, [&](const Entrant* e) { return !case_.suits(*e); });
    records_.resize(entrants_.size());
  }

  Result<void> run();
  void report(TablesResult& result) const;

 private:
  const Workload<K>& workload(const Entrant& entrant);
  Result<void> measure_limits();

  const TablesOptions& options_;
  const Case& case_;
  std::vector<const Entrant*> entrants_;
  const Progress& progress_;
  std::vector<Measured> records_;
  std::unique_ptr<Workload<K>> workload_;
  std::size_t workload_live_ = 0;
};

template <class K>
const Workload<K>& Contest<K>::workload(const Entrant& entrant) {
  const std::size_t live = case_.live(entrant);
  if (!workload_ || workload_live_ != live) {
    workload_.reset();
    workload_ = std::make_unique<Workload<K>>(live, case_.load ? 0 : case_.promised(entrant),
                                              options_.seed);
    workload_live_ = live;
  }
  return *workload_;
}

template <class K>
Result<void> Contest<K>::run() {
  for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      progress_(fmt::format("{}-byte keys, 2^{} slots, {}: repetition {} of {}: {}", sizeof(K),
                            case_.bits,
                            case_.load ? fmt::format("load {}", *case_.load) : "highest load",
                            repetition + 1, options_.repetitions, entrants_[i]->name));
      Turn<K> turn(*entrants_[i], options_, case_, workload(*entrants_[i]), records_[i]);
      if (auto ok = turn.run(repetition); !ok) return ok;
    }
    if (auto ok = measure_limits(); !ok) return ok;
  }
  return {};
}

template <class K>
Result<void> Contest<K>::measure_limits() {
  std::map<Fetches, double> measured;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  const auto each = [&](auto&& use) {
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      for (const std::string_view operation : {"touch", "hit", "miss", "insert", "delete", "mix"}) {
        use(records_[i], operation, needed(operation, *entrants_[i], records_[i]));
      }
    }
  };
  each([&](Measured&, std::string_view, const Fetches& fetches) {
    index_bytes = std::max(index_bytes, fetches.index_bytes);
    record_bytes = std::max(record_bytes, fetches.record_bytes);
  });
  auto limit = Limit::create(index_bytes, record_bytes, options_.pages);
  if (!limit) return std::unexpected(limit.error());
  each([&](Measured& record, std::string_view operation, const Fetches& fetches) {
    auto [at, fresh] = measured.try_emplace(fetches, 0);
    if (fresh) at->second = limit->independent_ns(fetches);
    record.limit_ns[operation].push_back(at->second);
  });
  return {};
}

std::vector<std::pair<double, double>> percentiles(std::vector<float> ns) {
  std::ranges::sort(ns);
  std::vector<std::pair<double, double>> all;
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
    const auto at =
        static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(ns.size())));
    all.emplace_back(percent, ns[std::max<std::size_t>(at, 1) - 1]);
  }
  return all;
}

template <class K>
void Contest<K>::report(TablesResult& result) const {
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    const Entrant& entrant = *entrants_[i];
    const Measured& record = records_[i];
    const auto live = static_cast<double>(case_.live(entrant));
    TableResult line{
        .table = entrant.name,
        .key_bytes = sizeof(K),
        .bits = case_.bits,
        .live = case_.live(entrant),
        .at_maximum = !case_.load.has_value(),
        .bytes_per_entry = static_cast<double>(record.index_bytes + record.record_bytes) / live,
        .index_per_entry = static_cast<double>(record.index_bytes) / live,
        .pages = record.pages};
    const auto add = [&](std::string_view operation, unsigned burst, double load,
                         const std::vector<double>& ns) {
      line.operation = operation;
      line.burst = burst;
      line.load = load;
      line.ns = spread_of(ns);
      line.limit_ns = spread_of(record.limit_ns.at(operation)).median;
      result.operations.push_back(line);
    };
    for (const auto& [what, ns] : record.ns)
      add(what.first, what.second, case_.load_of(entrant), ns);
    add("insert", 32, 0, record.fill_ns);
    result.insertions.push_back({entrant.name, sizeof(K), case_.bits, case_.load_of(entrant),
                                 record.insertion_ns.size(), percentiles(record.insertion_ns)});
    if (case_.load) continue;
    const std::size_t beyond = case_.promised(entrant) * 6 / 5 - case_.live(entrant);
    result.overloads.push_back({entrant.name, sizeof(K), case_.bits, case_.promised(entrant),
                                beyond * options_.repetitions, record.refused_below,
                                record.refused_beyond, spread_of(record.beyond_ns)});
  }
}

Result<void> measure_machine(const TablesOptions& options, unsigned bits, TablesResult& result) {
  const std::size_t records = (std::size_t{1} << bits) * 64;
  const std::size_t index = records / 28;  // a line for every 28 slots
  for (const Pages pages : {options.pages, Pages::small}) {
    if (pages == Pages::small && options.pages == Pages::small) break;
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
  }
  return {};
}

std::vector<const Entrant*> chosen(const std::vector<std::string>& names) {
  std::vector<const Entrant*> all;
  for (const Entrant& entrant : entrants()) {
    if (names.empty() || std::ranges::find(names, entrant.name) != names.end()) {
      all.push_back(&entrant);
    }
  }
  return all;
}

}  // namespace

Result<TablesResult> run_tables(const TablesOptions& options, const Progress& progress) {
  TablesResult result;
  const auto entrants = chosen(options.tables);
  for (const unsigned bits : options.bits) {
    progress(fmt::format("2^{} slots: the machine", bits));
    if (auto ok = measure_machine(options, bits, result); !ok) return std::unexpected(ok.error());
    std::vector<Case> cases;
    for (const double load : options.loads) cases.push_back({bits, load});
    if (options.at_maximum) cases.push_back({bits, std::nullopt});
    for (const Case& at : cases) {
      for (const unsigned key_bytes : options.key_bytes) {
        const auto with = [&]<class K>(std::type_identity<K>) -> Result<void> {
          Contest<K> contest(options, at, entrants, progress);
          if (auto ok = contest.run(); !ok) return ok;
          contest.report(result);
          return {};
        };
        auto ok = key_bytes == sizeof(KeyV4) ? with(std::type_identity<KeyV4>{})
                                             : with(std::type_identity<KeyV6>{});
        if (!ok) return std::unexpected(ok.error());
      }
    }
  }
  return result;
}

}  // namespace millrace::bench
