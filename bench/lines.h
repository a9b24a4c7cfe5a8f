// The question: how many cache lines does each table touch for one operation, and how many
// instructions does it take? The figures replace counters of cache misses, which virtual machines
// in clouds often lack.
//
// Keys are of IPv4, one at a time, without a pipeline. Each operation is single-stepped
// (`stepping.h`). A line that is touched whatever the key is stays in the cache; such a line is a
// *head* and is counted apart. Heads are
//  - memory from malloc's heap: table objects, the hash's secret, the benchmark's buffers (malloc
//    maps larger pieces, and all tables map their entries, nodes and records);
//  - mapped lines that more than a quarter of all operations of one kind touch, for example the top
//    of a list of free ids.
// The stack, which holds a copy of the key, is not counted. The instructions of the same call
// without a key are subtracted: hashing the key, the table's work and a few instructions of the
// surrounding loop remain.
//
// Nothing is timed: the same program with the same seed gives the same figures, wherever its memory
// lies. Exceptions: where `swiss` begins its probe depends on its array's address, and the number
// of head lines depends on what else the heap holds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "millrace/types.h"

namespace millrace::bench {

struct LinesOptions : Settings {
  LinesOptions() { repetitions = 1; }

  std::vector<std::string> tables;  ///< empty: all
  unsigned bits = 16;               ///< slots: 2 to that power
  std::vector<double> loads{0.75};
  bool at_maximum = false;    ///< measure each table at the load that it promises, too
  unsigned operations = 200;  ///< operations of each kind, `kLeastOperations` or more
  /// The least number of operations. With fewer, a line that two operations share by chance would
  /// count as a head.
  static constexpr unsigned kLeastOperations = 20;
};

/// Results of one kind of operation of one table.
struct LinesResult {
  std::string_view table;
  std::string_view operation;  ///< hit, touch, miss, insert, delete
  unsigned bits = 0;
  double load = 0;
  bool at_maximum = false;  ///< at the load that this table promises
  std::size_t operations = 0;
  double lines_mean = 0;  ///< distinct lines of an operation, without heads
  double lines_median = 0;
  double lines_p99 = 0;
  double lines_max = 0;
  double head_lines_mean = 0;
  double prefetched_only_mean = 0;  ///< lines of an operation that were prefetched and not touched
  double instructions_mean = 0;
  std::size_t undecoded = 0;  ///< instructions with an unknown memory operand
  std::size_t cut = 0;        ///< operations that were too long to be stepped to their end
};

struct LinesReport {
  std::vector<LinesResult> results;
  std::vector<std::string> left_out;  ///< a line for each table left out, with the reason
  bool complete = false;              ///< false: `progress` ended the measurement
};

/// Measures every table. From then on `malloc` maps large pieces in this process. Errors: usage if
/// no table promises any of the loads and `at_maximum` is false, or if `operations` is not below a
/// quarter of the entries; failed if single-stepping does not work (see `Stepper`), no table can be
/// made, memory is short, or a table's results differ from the reference's.
Result<LinesReport> run_lines(const LinesOptions& options, const Progress& progress);

}  // namespace millrace::bench
