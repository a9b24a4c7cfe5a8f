// Calculates the throughput of a pipeline, in which one thread reads for several workers (the DHash
// paper, section VI.A). The input is a packet's times on a single core. The model leaves out that
// cores slow each other down.
#pragma once

#include <algorithm>
#include <cmath>

namespace millrace::bench {

/// Times of a packet, all in one unit.
struct StageTimes {
  double input = 0;        ///< T_IP: the reader's work
  double ring = 0;         ///< T_FIFO: the cost at each end of the ring
  double application = 0;  ///< T_AP: a worker's work
};

/// Returns the number of workers, with a fraction, that together pass as many packets as the
/// reader. For the times of DHash's Table III this is 7.4.
inline double workers_in_balance(const StageTimes& times) {
  return (times.application + times.ring) / (times.input + times.ring);
}

/// Returns the least number of workers with which the reader is the limit, so that more workers
/// gain nothing.
inline unsigned best_workers(const StageTimes& times) {
  return std::max(static_cast<unsigned>(std::ceil(workers_in_balance(times))), 1U);
}

/// Returns the time between two finished packets, with a reader and that many workers.
inline double pipeline_interval(const StageTimes& times, unsigned workers) {
  return std::max(times.input + times.ring, (times.application + times.ring) / workers);
}

/// Returns the time between two finished packets if each worker does everything.
inline double run_to_completion_interval(const StageTimes& times, unsigned workers) {
  return (times.input + times.application) / workers;
}

}  // namespace millrace::bench
