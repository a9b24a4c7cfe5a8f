// Shows on a terminal's standard error, in place, what a benchmark has seen so far. Elsewhere it
// shows nothing.
#pragma once

#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>

#include "bench/progress.h"
#include "live_rows.h"

namespace millrace::cli {

/// For the thread that measures. It draws between two measurements; a thread of its own draws what
/// there was no time for (at most ten times a second), and once a second how the time passes.
class LiveTable {
 public:
  /// Nothing is shown where `quiet`.
  LiveTable(bool quiet, Unit unit);
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;
  ~LiveTable() { clear(); }

  /// Ends the benchmark once it is interrupted. Refers to this.
  bench::Progress progress();
  /// True if it is shown at all.
  bool shows() const { return shows_; }
  /// Takes it off the terminal; it does not come back.
  void clear();

 private:
  using SteadyClock = std::chrono::steady_clock;

  bool next(const bench::Step& step);
  void seen(std::string_view who, double value);
  void redraw(const std::stop_token& stop);
  void draw();

  const SteadyClock::time_point start_ = SteadyClock::now();
  const bool shows_;
  std::mutex mutex_;  // what follows
  LiveRows rows_;
  SteadyClock::time_point drawn_;
  bool is_stale_ = false;
  std::jthread thread_;
};

}  // namespace millrace::cli
