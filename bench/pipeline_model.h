// The arithmetic of a pipeline, in which one thread reads for several workers: the DHash paper's,
// section VI.A. It takes a packet's times from a single core and knows nothing of what two cores do
// to each other.
#pragma once

#include <algorithm>
#include <cmath>

namespace millrace::bench {

/// Of a packet, all in one unit.
struct StageTimes {
  double input = 0;        ///< T_IP: what the reader does
  double ring = 0;         ///< T_FIFO: at either end
  double application = 0;  ///< T_AP: what a worker does
};

/// How many workers take together as long for a packet as the reader. DHash's Table III: 7.4.
inline double workers_in_balance(const StageTimes& times) {
  return (times.application + times.ring) / (times.input + times.ring);
}

/// The fewest with which the reader is the limit, so that more bring nothing.
inline unsigned best_workers(const StageTimes& times) {
  return std::max(static_cast<unsigned>(std::ceil(workers_in_balance(times))), 1U);
}

/// From one packet's end to the next one's, with a reader and so many workers.
inline double pipeline_interval(const StageTimes& times, unsigned workers) {
  return std::max(times.input + times.ring, (times.application + times.ring) / workers);
}

/// And where each worker does everything.
inline double run_to_completion_interval(const StageTimes& times, unsigned workers) {
  return (times.input + times.application) / workers;
}

}  // namespace millrace::bench
