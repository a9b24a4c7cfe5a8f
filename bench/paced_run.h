// Runs workers with packets that arrive at a constant rate, whether the workers keep up or not.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/arrivals.h"
#include "bench/clock.h"
#include "port/replay_port.h"
#include "worker/workers.h"

namespace millrace::bench {

struct OfferedLoad {
  double mpps = 1;  ///< for all workers together; each worker gets a rate in proportion to its part
  double seconds = 1;
  unsigned queue = 1024;  ///< packets that may wait for a worker
  unsigned burst = 32;
};

struct PacedRun {
  std::uint64_t offered = 0;  ///< packets that arrived
  std::uint64_t lost = 0;     ///< packets that found their worker's queue full
  std::uint64_t taken = 0;    ///< packets that workers received
  double mpps = 0;            ///< forwarded by all workers together
  double waiting = 0;         ///< share of the workers' time spent waiting for each other
  LatencyBins latency;        ///< from arrival to send, of forwarded packets
};

/// Offers the load to the workers. `parts` has one part for each worker, which is repeated as often
/// as needed. Errors (failed): no memory, or a thread could not be started.
Result<PacedRun> paced_run(Workers& workers, const Capture& capture,
                           const std::vector<CapturePart>& parts, const OfferedLoad& load,
                           const CycleClock& clock);

}  // namespace millrace::bench
