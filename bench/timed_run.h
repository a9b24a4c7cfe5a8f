// Passes a capture through workers, and measures the time of each burst.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/clock.h"
#include "port/replay_port.h"
#include "worker/workers.h"

namespace millrace::bench {

struct TimedRun {
  double mpps = 0;              ///< all workers together
  double ns_per_packet = 0;     ///< on one core
  double waiting = 0;           ///< share of the workers' time spent waiting for each other
  std::vector<float> burst_us;  ///< time of each burst of each worker, from receive to send
};

/// The workers' times of a run.
struct WorkersTime {
  double longest_ns = 0;  ///< time of the slowest worker
  double sum_ns = 0;      ///< times of all workers
  double waited_ns = 0;   ///< part of `sum_ns`: the workers waited for each other
};

/// Returns how many packets were served: through an entry, or without one by consistent hashing.
inline std::uint64_t served_by(const WorkerCounters& counters) {
  const auto of = [&](Verdict verdict) {
    return counters.verdict[static_cast<std::size_t>(verdict)].value();
  };
  return of(Verdict::tracked) + of(Verdict::stateless);
}

/// Called on a worker's thread with each burst that the worker has received, empty bursts left out.
using OnBurst = std::function<void(unsigned worker, const Burst& burst)>;

/// Returns each worker's part of the capture, under the default spread. Errors (failed): no memory.
Result<std::vector<CapturePart>> parts_for(Workers& workers, const Capture& capture,
                                           std::uint64_t seed);

/// Runs each worker on its port until the port's end. Errors: as `Workers::run`.
Result<WorkersTime> run_and_time(Workers& workers, std::span<Port* const> ports);

/// Passes the capture through the workers; `parts` has one part for each worker. Errors (failed):
/// no memory, or a thread could not be started.
Result<TimedRun> timed_run(Workers& workers, const Capture& capture,
                           const std::vector<CapturePart>& parts, const ReplayOptions& options,
                           const CycleClock& clock, const OnBurst& on_burst = {});

}  // namespace millrace::bench
