// The question: which table is how fast, and how far is each from what the machine can do?
//
// One process, one core; tables are measured in turn, each repetition with a table made and filled
// anew, so that a repetition also sees other pages. A table of 2^n slots is filled to a load and
// then churned, until every entry has been replaced in random order, before anything is measured.
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
  std::vector<std::string> tables;             ///< none: all
  std::vector<unsigned> bits{16, 20, 22, 24};  ///< slots: 2 to that power
  std::vector<double> loads{0.75};
  bool at_maximum = true;  ///< each table at the load that it promises, too
  std::vector<unsigned> key_bytes{16, 40};
  std::vector<unsigned> bursts{1, 8, 32, 64};
};

/// The tables that are measured together, on the same keys.
struct TablesGroup {
  Case at;
  unsigned key_bytes = 0;
  std::vector<const Entrant*> entrants;
};

struct TablesPlan {
  TablesOptions options;
  std::vector<TablesGroup> groups;    ///< those of one size one after the other
  std::vector<std::string> left_out;  ///< who is not measured, and why: a line each

  std::size_t trials() const;
  /// The most at one time, and the time that it takes where docs/tables.md was written: estimates.
  std::size_t memory_bytes() const;
  double seconds() const;
};

struct TableResult {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  std::size_t live = 0;
  bool at_maximum = false;     ///< measured at the load that this table promises
  double load = 0;             ///< live / 2^bits; of a fill, when it ends
  std::string_view operation;  ///< touch, hit, miss, insert, delete, mix; fill: from empty
  unsigned burst = 0;
  Spread ns;                   ///< an operation
  double limit_ns = 0;         ///< the fetches that it cannot avoid, in the same run
  double bytes_per_entry = 0;  ///< everything that the table holds, live
  double index_per_entry = 0;  ///< all but the records
  Pages pages = Pages::huge;   ///< the worst that it got
};

/// How long single insertions took, from all repetitions.
struct InsertionTimes {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  double load = 0;
  std::size_t count = 0;
  std::vector<std::pair<double, double>> percentiles;  ///< percent, ns
};

/// What became of insertions up to 1.2 times the promised capacity.
struct OverloadResult {
  std::string_view table;
  unsigned key_bytes = 0;
  unsigned bits = 0;
  std::size_t promised = 0;
  std::size_t offered = 0;
  std::size_t refused_below = 0;  ///< before as many were in as promised, churn included
  std::size_t refused_beyond = 0;
  Spread ns;  ///< an insertion beyond the promise
};

/// The machine, for memory of the sizes that `race` would have.
struct MachineLimit {
  unsigned bits = 0;
  Pages pages = Pages::huge;
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Spread dependent_ns;  ///< a line of the records, one after the other
  Spread one_read_ns;   ///< a line of the records
  Spread one_update_ns;
  Spread two_read_ns;     ///< a line of the index and one of the records
  Spread read_update_ns;  ///< the same, the second updated: the floor of a touch
};

/// Of whole groups.
struct TablesResult {
  std::size_t groups = 0;
  std::vector<TableResult> operations;
  std::vector<InsertionTimes> insertions;
  std::vector<OverloadResult> overloads;
  std::vector<MachineLimit> limits;
};

/// Who is measured where. Tables are left out where the load is more than they promise, and where
/// they cannot be made at all. Error: nobody is left.
Result<TablesPlan> plan_tables(const TablesOptions& options);

/// Adds to `result` what is finished, group by group, and ends early where `progress` says so.
/// Errors: no memory, or a table that answers what the reference does not.
Result<void> run_tables(const TablesPlan& plan, const Progress& progress, TablesResult& result);

}  // namespace millrace::bench
