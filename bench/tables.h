// The question: how fast is each table, and how far is it from the machine's limit?
//
// One process, one core. Tables are measured in turn. Each repetition makes and fills its tables
// anew, so that they lie on other pages than in the previous repetition. A table of 2^n slots is
// filled to a load, then churned until every entry has been replaced, in random order; after that
// the other operations are measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/contender.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "bench/trial.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct TablesOptions : Settings {
  std::vector<std::string> tables;             ///< empty: all
  std::vector<unsigned> bits{16, 20, 22, 24};  ///< slots: 2 to that power
  std::vector<double> loads{0.75};
  bool at_maximum = true;  ///< measure each table at the load that it promises, too
  std::vector<unsigned> key_bytes{16, 40};
  std::vector<unsigned> bursts{1, 8, 32, 64};
};

/// Tables that are measured together, on the same keys.
struct TablesGroup {
  Case at;
  unsigned key_bytes = 0;
  std::vector<const Entrant*> entrants;
};

struct TablesPlan {
  TablesOptions options;
  std::vector<TablesGroup> groups;    ///< groups of one size stand together
  std::vector<std::string> left_out;  ///< a line for each table left out, with the reason

  std::size_t trials() const;
  /// Returns an estimate of the most memory at one time.
  std::size_t memory_bytes() const;
  /// Returns an estimate of the duration on the machine of docs/tables.md.
  double seconds() const;
};

struct TableResult {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  std::size_t live = 0;
  bool at_maximum = false;  ///< measured at the load that this table promises
  double load = 0;          ///< live / 2^bits; for `fill`, the load after filling
  /// Touch, hit, miss, insert, delete, mix; fill: insert into the empty table.
  std::string_view operation;
  unsigned burst = 0;          ///< keys a burst
  Spread ns;                   ///< time of an operation
  double limit_ns = 0;         ///< least time of the fetches that the operation cannot avoid
  double bytes_per_entry = 0;  ///< the table's whole memory, for each live entry
  double index_per_entry = 0;  ///< `bytes_per_entry` without the records
  Pages pages = Pages::huge;   ///< the worst kind that the table got
};

/// Percentiles of the time of single insertions, over all repetitions.
struct InsertionTimes {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  double load = 0;
  std::size_t count = 0;
  std::vector<std::pair<double, double>> percentiles;  ///< percent, ns
};

/// Results of insertions up to 1.2 times the promised capacity.
struct OverloadResult {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  std::size_t promised = 0;
  std::size_t offered = 0;  ///< insertions beyond the promised capacity, in all repetitions
  /// Insertions refused up to the promised capacity, churn included.
  std::size_t refused_below = 0;
  std::size_t refused_beyond = 0;  ///< insertions refused beyond the promised capacity
  Spread ns;                       ///< time of an insertion beyond the promised capacity
};

/// The machine's limit, for memory of the sizes that `race` would have.
struct MachineLimit {
  unsigned bits = 0;
  Pages pages = Pages::huge;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Spread dependent_ns;    ///< read a line of the records; its address depends on the previous line
  Spread one_read_ns;     ///< read a line of the records
  Spread one_update_ns;   ///< update a line of the records
  Spread two_read_ns;     ///< read a line of the index and one of the records
  Spread read_update_ns;  ///< read a line of the index and update one of the records
};

/// Results of finished groups.
struct TablesResult {
  std::size_t groups = 0;
  std::vector<TableResult> operations;
  std::vector<InsertionTimes> insertions;
  std::vector<OverloadResult> overloads;
  std::vector<MachineLimit> limits;
};

/// Plans the measurements. Leaves out tables that cannot be made here, and each table at loads
/// above the one that it promises. Errors: failed if no table can be made; usage if no table
/// promises any of the loads, and `at_maximum` is false.
Result<TablesPlan> plan_tables(const TablesOptions& options);

/// Measures the plan, and adds each finished group to `result`. Ends early if `progress` returns
/// false. Errors (failed): no memory, or a table with results other than the reference's.
Result<void> run_tables(const TablesPlan& plan, const Progress& progress, TablesResult& result);

}  // namespace millrace::bench
