// Shows a benchmark's measurements so far on standard error, in place, if standard error is a
// terminal.
#pragma once

#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>

#include "bench/progress.h"
#include "live_rows.h"

namespace millrace::cli {

/// The table of a running benchmark. The thread that measures uses it, and draws between two
/// measurements, at most ten times a second. A thread of the object's own draws what was skipped
/// and, once a second, the time so far.
class LiveTable {
 public:
  /// Shows nothing if `quiet`.
  LiveTable(bool quiet, Unit unit);
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;
  ~LiveTable() { clear(); }

  /// Returns a `Progress` that shows the benchmark and ends it after an interrupt. The `Progress`
  /// refers to this object.
  bench::Progress progress();
  /// Returns true if the table is shown.
  bool shows() const { return shows_; }
  /// Ends the drawing, and removes the lines from the terminal.
  void clear();

 private:
  using SteadyClock = std::chrono::steady_clock;

  bool next(const bench::Step& step);
  void seen(std::string_view who, double value);
  void redraw(const std::stop_token& stop);
  void draw();

  const SteadyClock::time_point start_ = SteadyClock::now();
  const bool shows_;
  std::mutex mutex_;  // protects `rows_`, `drawn_` and `is_stale_`
  LiveRows rows_;
  SteadyClock::time_point drawn_;
  bool is_stale_ = false;
  std::jthread thread_;
};

}  // namespace millrace::cli
