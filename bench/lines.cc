#include "lines.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>

#include "bench/spread.h"
#include "bench/stepping.h"
#include "bench/tables.h"
#include "bench/workload.h"

extern "C" char end;  // defined by the linker: the heap begins behind it

namespace millrace::bench {
namespace {

using Key = KeyV4;
using Table = Contender<Key>;
using Call = std::size_t (Table::*)(std::span<const Key>, unsigned);

/// Size from which on `malloc` maps memory. Once the threshold is set `malloc` does not raise it.
constexpr int kMappedBytes = 128 << 10;

/// Steps through operations of one kind, one after the other.
class Kind {
 public:
  Kind(Stepper& stepper, Table& table, Call call) : stepper_(stepper), table_(table), call_(call) {
    step({});  // the first call may also bind functions of a library
    empty_ = static_cast<double>(step({}).second.instructions);
  }

  /// Runs the operation for a key, and returns the table's result: a number of keys.
  std::size_t operator()(const Key& key) {
    const Key here = key;  // on the stack, which is not counted
    auto [answer, print] = step({&here, 1});
    prints_.push_back(std::move(print));
    return answer;
  }
  /// Returns the figures of all operations except the first, which may bind functions of a library.
  LinesResult result() const;

 private:
  std::pair<std::size_t, Footprint> step(std::span<const Key> keys) {
    std::size_t answer = 0;
    auto print = stepper_.follow([&] { answer = (table_.*call_)(keys, 1); });
    return {answer, std::move(print)};
  }

  Stepper& stepper_;
  Table& table_;
  Call call_;
  double empty_ = 0;  // instructions of a call without a key
  std::vector<Footprint> prints_;
};

/// Returns true if the line belongs to the heap that `malloc` extends, not to a mapping.
bool in_heap(std::uint64_t line) {
  return line >= reinterpret_cast<std::uint64_t>(&end) / kLineBytes &&
         line < reinterpret_cast<std::uint64_t>(::sbrk(0)) / kLineBytes;
}

/// Numbers of operations that touched a line, by line.
using Touches = std::unordered_map<std::uint64_t, std::size_t>;

Touches touches_of(std::span<const Footprint> prints) {
  Touches touches;
  for (const Footprint& print : prints) {
    for (const std::uint64_t line : print.touched) ++touches[line];
  }
  return touches;
}

LinesResult Kind::result() const {
  const auto prints = std::span(prints_).subspan(1);
  const Touches touches = touches_of(prints);
  const auto is_head = [&](std::uint64_t line) {
    return in_heap(line) || 4 * touches.at(line) > prints.size();
  };
  LinesResult result{.operations = prints.size()};
  const auto add = [&](double& mean, auto figure) {
    mean += static_cast<double>(figure) / static_cast<double>(prints.size());
  };
  std::vector<float> lines;
  for (const Footprint& print : prints) {
    const auto heads = std::ranges::count_if(print.touched, is_head);
    const auto own = std::ssize(print.touched) - heads;
    const auto in_vain = std::ranges::count_if(print.prefetched, [&](std::uint64_t line) {
      return std::ranges::find(print.touched, line) == print.touched.end();
    });
    lines.push_back(static_cast<float>(own));
    add(result.lines_mean, own);
    add(result.head_lines_mean, heads);
    add(result.prefetched_only_mean, in_vain);
    add(result.instructions_mean, static_cast<double>(print.instructions) - empty_);
    result.undecoded += print.undecoded;
    result.cut += print.cut ? 1 : 0;
  }
  const auto percentiles = percentiles_of(std::move(lines), {50, 99, 100});
  result.lines_median = percentiles[0].second;
  result.lines_p99 = percentiles[1].second;
  result.lines_max = percentiles[2].second;
  return result;
}

/// A table at one load.
class SteppedTable {
 public:
  SteppedTable(Stepper& stepper, const Entrant& entrant, const LinesOptions& options,
               const Case& at, const Workload<Key>& workload)
      : stepper_(stepper), entrant_(entrant), options_(options), case_(at), work_(workload) {}

  /// Adds a result for each kind of operation.
  Result<void> run(std::vector<LinesResult>& results);

 private:
  Result<void> fill();
  Result<void> look_up(std::string_view operation, Call call, std::size_t stream);
  Result<void> miss();
  Result<void> change();
  void add(std::string_view operation, const Kind& kind);
  std::size_t steps() const { return std::size_t{options_.operations} + 1; }
  std::unexpected<Error> wrong(std::string_view what, std::size_t got, std::size_t expected) const;

  Stepper& stepper_;
  const Entrant& entrant_;
  const LinesOptions& options_;
  const Case& case_;
  const Workload<Key>& work_;
  std::unique_ptr<Table> table_;
  std::vector<bool> present_;  // by place in work_.second
  std::vector<LinesResult> results_;
};

Result<void> SteppedTable::run(std::vector<LinesResult>& results) {
  if (auto ok = fill(); !ok) return ok;
  if (auto ok = look_up("hit", &Table::find, 0); !ok) return ok;
  if (auto ok = look_up("touch", &Table::touch, 1); !ok) return ok;
  if (auto ok = miss(); !ok) return ok;
  if (auto ok = change(); !ok) return ok;
  if (auto ok = table_->check_invariants(); !ok) return ok;
  results.insert(results.end(), results_.begin(), results_.end());
  return {};
}

/// Fills the table as `bench tables` does, and records which keys are present, as the reference for
/// the operations. At most one key in a hundred may have been refused.
Result<void> SteppedTable::fill() {
  auto table = entrant_.make<Key>()({.capacity = case_.promised(entrant_),
                                     .state_bytes = kStateBytes<Key>,
                                     .pages = options_.pages,
                                     .secret = Secret::from_seed(options_.seed)});
  if (!table) {
    return std::unexpected(
        Error{fmt::format("{}: {}", entrant_.name, table.error().message), table.error().kind});
  }
  table_ = std::move(*table);
  table_->insert(work_.filling, 32);
  table_->churn(work_.first, work_.second);
  for (const ConnId id : table_->ids(work_.second)) present_.push_back(id != ConnId::none);
  const auto found = static_cast<std::size_t>(std::ranges::count(present_, true));
  if (found != table_->size()) return wrong("keys found", found, table_->size());
  const std::size_t refused = work_.second.size() - found;
  if (refused > work_.second.size() / 100)
    return wrong("keys refused below the promised capacity, which are more than one in a hundred",
                 refused, 0);
  return {};
}

Result<void> SteppedTable::look_up(std::string_view operation, Call call, std::size_t stream) {
  Kind kind(stepper_, *table_, call);
  for (std::size_t i = 0; i < steps(); ++i) {
    const std::size_t at = stream * Workload<Key>::kStream + i;
    const std::size_t expected = present_[work_.hit_of[at]] ? 1 : 0;
    if (const auto found = kind(work_.hits[at]); found != expected)
      return wrong(fmt::format("keys found by {}", operation), found, expected);
  }
  add(operation, kind);
  return {};
}

Result<void> SteppedTable::miss() {
  Kind kind(stepper_, *table_, &Table::find);
  for (std::size_t i = 0; i < steps(); ++i) {
    if (const auto found = kind(work_.misses[i]); found != 0)
      return wrong("keys found by miss", found, 0);
  }
  add("miss", kind);
  return {};
}

/// Steps through deletions and insertions in turn, so that the load stays the same.
Result<void> SteppedTable::change() {
  Kind insert(stepper_, *table_, &Table::insert);
  Kind erase(stepper_, *table_, &Table::erase);
  const auto leaving = work_.swapped().first(steps());
  const auto coming = std::span(work_.third).first(steps());
  std::size_t in = 0;
  for (std::size_t i = 0; i < steps(); ++i) {
    const std::size_t expected = present_[i] ? 1 : 0;
    if (const auto erased = erase(leaving[i]); erased != expected)
      return wrong("keys erased by delete", erased, expected);
    in += insert(coming[i]);
  }
  if (const auto found = table_->find(leaving, 32); found != 0)
    return wrong("erased keys found", found, 0);
  if (const auto found = table_->find(coming, 32); found != in)
    return wrong("inserted keys found", found, in);
  if (in + steps() / 100 < steps()) return wrong("keys inserted", in, steps());
  add("insert", insert);
  add("delete", erase);
  return {};
}

void SteppedTable::add(std::string_view operation, const Kind& kind) {
  LinesResult result = kind.result();
  result.table = entrant_.name;
  result.operation = operation;
  result.bits = case_.bits;
  result.load = case_.load_of(entrant_);
  result.at_maximum = !case_.load.has_value();
  results_.push_back(result);
}

std::unexpected<Error> SteppedTable::wrong(std::string_view what, std::size_t got,
                                           std::size_t expected) const {
  return std::unexpected(Error{fmt::format("{} gives wrong results: {}: {} instead of {}",
                                           entrant_.name, what, got, expected)});
}

/// A table and a load.
struct Combination {
  const Entrant* entrant;
  Case where;
};

class Experiment {
 public:
  Experiment(const LinesOptions& options, Stepper& stepper, std::vector<LinesResult>& results)
      : options_(options), stepper_(stepper), results_(results) {}

  /// Measures a table, and returns its first figure: the lines of a hit.
  Result<double> measure(const Combination& at) {
    const std::size_t first = results_.size();
    const auto* work = workload(at.where.live(*at.entrant));
    if (work->third.size() <= options_.operations) {
      return std::unexpected(Error{
          fmt::format(
              "--operations {}: {} entries allow at most {}: ask for fewer, or for more --bits",
              options_.operations, work->second.size(), work->third.size() - 1),
          Error::Kind::usage});
    }
    SteppedTable table(stepper_, *at.entrant, options_, at.where, *work);
    if (auto ok = table.run(results_); !ok) return std::unexpected(ok.error());
    return results_[first].lines_mean;
  }

 private:
  const Workload<Key>* workload(std::size_t live) {
    if (!workload_ || workload_->second.size() != live) {
      workload_.reset();
      workload_ = std::make_unique<Workload<Key>>(live, 0, options_.seed);
    }
    return workload_.get();
  }

  const LinesOptions& options_;
  Stepper& stepper_;
  std::vector<LinesResult>& results_;
  std::unique_ptr<Workload<Key>> workload_;
};

}  // namespace

Result<LinesReport> run_lines(const LinesOptions& options, const Progress& progress) {
  ::mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  auto stepper = Stepper::create();
  if (!stepper) return std::unexpected(stepper.error());
  TablesOptions asked{.tables = options.tables,
                      .bits = {options.bits},
                      .loads = options.loads,
                      .at_maximum = options.at_maximum,
                      .key_bytes = {sizeof(Key)}};
  asked.seed = options.seed;
  const auto plan = plan_tables(asked);
  if (!plan) return std::unexpected(plan.error());
  std::vector<Combination> combinations;
  for (const TablesGroup& group : plan->groups) {
    for (const Entrant* entrant : group.entrants) combinations.push_back({entrant, group.at});
  }
  LinesReport report{.left_out = plan->left_out};
  Experiment experiment(options, *stepper, report.results);
  const auto title = [](const Combination& at) {
    return fmt::format("{}, {}load {}", at.entrant->name, at.where.load ? "" : "highest ",
                       at.where.load_of(*at.entrant));
  };
  try {
    const auto whole = in_turn(options, combinations, progress, title,
                               [&](const Combination& at) { return experiment.measure(at); });
    if (!whole) return std::unexpected(whole.error());
    report.complete = *whole;
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{"no memory left: lower the capacity or free memory"});
  }
  return report;
}

}  // namespace millrace::bench
