// What a benchmark has shown so far, as lines of text for a window of any size. Knows neither a
// terminal nor a clock: `LiveTable` shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/spread.h"

namespace millrace::cli {

/// Of a benchmark's first figure.
enum class Unit : std::uint8_t {
  ns,
  lines,  ///< of the cache
  mpps,   ///< more is better; less, of the others
};

struct WindowSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

struct LiveLine {
  std::string text;
  bool is_best = false;
};

/// One thread at a time.
class LiveRows {
 public:
  explicit LiveRows(Unit unit) : unit_(unit) {}

  /// What is under way from now on.
  void next(const bench::Step& step);
  void add(std::string_view who, double value);

  /// At least one line, each a column narrower than the window (a full line would wrap), and a line
  /// fewer than it has. What is under way and how far it has come; a table with a row a contender.
  std::vector<LiveLine> lines(double seconds, WindowSize window) const;

 private:
  struct Row {
    std::string who;
    std::vector<double> values;
    bench::Spread spread = {};  // of the values, where there are any
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
  std::size_t to_come_ = 0;  // 0: not known
};

}  // namespace millrace::cli
