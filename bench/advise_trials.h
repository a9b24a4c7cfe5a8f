// Trials of `advise`: workers pass the capture, and a combination is timed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "bench/advise.h"
#include "bench/clock.h"
#include "bench/timed_run.h"
#include "port/replay_port.h"
#include "worker/workers.h"

namespace millrace::bench {

/// A combination under trial, and what was seen of it in this round.
struct Candidate {
  Tried tried;
  std::vector<double> ns;
  std::vector<double> waiting;

  bool is_in() const { return tried.failed.empty(); }
  double least() const { return *std::ranges::min_element(ns); }
};

class Trials {
 public:
  Trials(const Capture& capture, const AdviceOptions& options)
      : capture_(&capture), options_(&options) {}

  /// Measures the capture: its traffic, and the room that its connections take. False where
  /// `progress` ended it.
  Result<bool> prepare(Advice& advice, const Progress& progress);
  /// Passes it for about so many milliseconds. What the combination cannot do is noted, and is no
  /// error. Error (failed): no memory even for this.
  Result<void> run(Candidate& candidate, double ms);

 private:
  /// Limits the packets of a pass, so that with a long capture, too, every combination gets a turn.
  Result<void> shorten(double combinations);
  /// Notes what `race` has served, which every other pass should serve as well.
  void take_for_right(const WorkerCounters& counters);
  Result<TimedRun> pass(Workers& workers);
  Result<Workers> make(const Combination& combination) const;
  /// Finds the room in which every connection gets an entry: what there is, twice as much, and so
  /// on, up to `kRoomMost` and as far as memory goes. The counters of two passes in it.
  Result<WorkerCounters> find_room();

  const Capture* capture_;
  std::optional<Capture> first_packets_;  // of a long capture
  const AdviceOptions* options_;
  std::vector<CapturePart> parts_;
  std::size_t capacity_ = 0;
  std::size_t capacity_v6_ = 0;
  unsigned step_ms_ = 10;
  double ns_per_packet_ = 100;  // about
  double tracked_once_ = 0;     // packets of one pass that are served through an entry
  double served_once_ = 0;      // and all that are
  CycleClock clock_;
};

}  // namespace millrace::bench
