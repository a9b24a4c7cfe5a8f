// Formats a benchmark's measurements so far as lines of text for a window of any size. Uses neither
// a terminal nor a clock; `LiveTable` shows the lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/spread.h"

namespace millrace::cli {

/// The unit of a benchmark's first figure.
enum class Unit : std::uint8_t {
  ns,     ///< less is better
  lines,  ///< cache lines; less is better
  mpps,   ///< more is better
};

struct WindowSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

struct LiveLine {
  std::string text;
  bool is_best = false;
};

/// The rows of a running benchmark's table. One thread at a time may use it.
class LiveRows {
 public:
  explicit LiveRows(Unit unit) : unit_(unit) {}

  /// Begins a step.
  void next(const bench::Step& step);
  /// Adds a measurement of a contender.
  void add(std::string_view who, double value);

  /// Returns the present step with its progress, then a table with one row a contender, as many as
  /// fit; `seconds` is the time so far. There is at least one line. If the window has two rows or
  /// more, the lines are fewer than its rows. Lines are at least a column narrower than the window,
  /// because a full line would wrap.
  std::vector<LiveLine> lines(double seconds, WindowSize window) const;

 private:
  struct Row {
    std::string who;
    std::vector<double> values;
    bench::Spread spread = {};  // of the values, if there are any
  };

  Row& row(std::string_view who);
  std::string under_way(double seconds) const;
  std::vector<LiveLine> table(std::size_t most, std::size_t width) const;
  std::string median(const Row& row, bool with_spread) const;
  bool is_better(const Row& a, const Row& b) const;
  std::vector<const Row*> best_of(std::size_t most) const;

  Unit unit_;
  std::vector<Row> rows_;  // in order of appearance
  std::string what_;
  std::string who_;
  std::size_t done_ = 0;
  std::size_t to_come_ = 0;  // 0: unknown
};

}  // namespace millrace::cli
