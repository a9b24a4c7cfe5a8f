// Trials of `advise`: workers with one combination pass the capture, and their time is measured.
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

/// A combination under trial, with its measurements in the present round.
struct Candidate {
  Tried tried;
  std::vector<double> ns;       // nanoseconds a packet, by turn
  std::vector<double> waiting;  // share of the workers' time spent waiting, by turn

  bool is_in() const { return tried.failed.empty(); }
  double least() const { return *std::ranges::min_element(ns); }
};

class Trials {
 public:
  Trials(const Capture& capture, const AdviceOptions& options)
      : capture_(&capture), options_(&options) {}

  /// Measures the capture's traffic and the room that its connections take, then shortens a long
  /// capture (`shorten`). Returns false if `progress` ended the search. Errors (failed): no
  /// connection in the capture, no memory, or no thread.
  Result<bool> prepare(Advice& advice, const Progress& progress);
  /// Passes the capture for about `ms` milliseconds. If the combination does not work, writes the
  /// reason to `candidate.tried.failed`, without an error. Errors (failed): no memory, or no
  /// thread.
  Result<void> run(Candidate& candidate, double ms);

 private:
  /// Shortens a long capture to its first packets, so that there is time for a turn of each
  /// combination; `combinations` is their number. Errors (failed): no memory, or no thread.
  Result<void> shorten(double combinations);
  /// Notes how many packets `race` served, from `counters` of `kPasses` passes: every other
  /// combination should serve nearly as many.
  void take_for_right(const WorkerCounters& counters);
  Result<TimedRun> pass(Workers& workers);
  Result<Workers> make(const Combination& combination) const;
  /// Finds capacities with which every connection gets an entry: doubles the present ones until all
  /// connections do, memory is short, or the capacities would exceed the first ones times
  /// `kRoomMost` times the number of workers. Returns the counters of `kPasses` passes with the
  /// capacities that it found. Errors (failed): no memory for the first capacities, or no thread.
  Result<WorkerCounters> find_room();

  const Capture* capture_;
  std::optional<Capture> first_packets_;  // the part of a long capture that is timed
  const AdviceOptions* options_;
  std::vector<CapturePart> parts_;
  std::size_t capacity_ = 0;
  std::size_t capacity_v6_ = 0;
  unsigned step_ms_ = 10;
  double ns_per_packet_ = 100;  // estimate, of all workers together
  double tracked_once_ = 0;     // packets of one pass that are served through an entry
  double served_once_ = 0;      // packets of one pass that are served, with or without an entry
  CycleClock clock_;
};

}  // namespace millrace::bench
