// The question: how many cache lines does each table touch for one operation, and in how many
// instructions? It stands in for counters of cache misses, which guests of clouds do not have.
//
// Single keys of IPv4, no pipeline, each operation stepped through (`stepping.h`). What lies in
// memory whatever the key is, and never leaves the cache, is no line of the operation but a *head*:
// what `malloc` gave from its heap, that is table objects, the hash's secret and the benchmark's
// own buffers (larger pieces it maps, and all tables map entries, nodes and records), and a mapped
// line that more than a quarter of all operations of one kind touch, as the top of a list of free
// ids. A copy of the key lies on the stack, which is not counted at all. From instructions those of
// the same call without a key are taken off: what remains is to hash the key, the table's work, and
// a few of the loop around it.
//
// Nothing is timed: a seed gives the same figures each time, wherever memory lies, as long as the
// program is the same. Only `swiss` begins its probing where its array's address says; and how many
// lines the heads are depends on what else the heap holds.
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

  std::vector<std::string> tables;  ///< none: all
  unsigned bits = 16;               ///< slots: 2 to that power
  std::vector<double> loads{0.75};
  bool at_maximum = false;    ///< each table at the load that it promises, too
  unsigned operations = 200;  ///< of each kind, `kLeastOperations` or more
  /// With fewer a line that two operations share by chance would look like a head.
  static constexpr unsigned kLeastOperations = 20;
};

/// One kind of operation of one table.
struct LinesResult {
  std::string_view table;
  std::string_view operation;  ///< hit, touch, miss, insert, delete
  unsigned bits = 0;
  double load = 0;
  bool at_maximum = false;  ///< at the load that this table promises
  std::size_t operations = 0;
  double lines_mean = 0;  ///< distinct ones of an operation, without heads
  double lines_median = 0;
  double lines_p99 = 0;
  double lines_max = 0;
  double head_lines_mean = 0;
  double prefetched_only_mean = 0;  ///< lines that were prefetched and not touched
  double instructions_mean = 0;
  std::size_t undecoded = 0;  ///< instructions whose memory is not known
  std::size_t cut = 0;        ///< operations that were too long to be followed to their end
};

struct LinesReport {
  std::vector<LinesResult> results;
  std::vector<std::string> left_out;  ///< who is not measured, and why: a line each
  bool complete = false;              ///< false: `progress` ended it
};

/// Errors: single-stepping does not work here (see `Stepper`), nobody is left to measure or more
/// operations than a quarter of the entries (usage), no memory, or a table that answers what the
/// reference does not. From then on `malloc` maps large pieces in this process.
Result<LinesReport> run_lines(const LinesOptions& options, const Progress& progress);

}  // namespace millrace::bench
