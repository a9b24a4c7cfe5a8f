#include "paced_run.h"

#include <cmath>
#include <deque>
#include <utility>

#include "bench/paced_port.h"
#include "bench/timed_run.h"

namespace millrace::bench {
namespace {

/// Returns the arrivals at the port of one part of the capture. The part has the share `share` of
/// the capture's packets.
Pace pace_of(const OfferedLoad& load, double share) {
  const double packets = std::round(load.mpps * 1e6 * load.seconds * share);
  if (packets < 1) return {.queue = load.queue, .burst = load.burst};
  return {.packets = static_cast<std::uint64_t>(packets),
          .ns_each = load.seconds * 1e9 / packets,
          .queue = load.queue,
          .burst = load.burst};
}

}  // namespace

Result<PacedRun> paced_run(Workers& workers, const Capture& capture,
                           const std::vector<CapturePart>& parts, const OfferedLoad& load,
                           const CycleClock& clock) {
  std::deque<PacedPort<CycleClock>> ports;
  std::vector<Port*> pointers;
  for (const CapturePart& part : parts) {
    auto port =
        ReplayPort::create(capture, {.loops = UINT32_MAX, .clock = Clock::wall}, nullptr, part);
    if (!port) return std::unexpected(port.error());
    const double share =
        static_cast<double>(part.positions.size()) / static_cast<double>(capture.size());
    ports.emplace_back(std::move(*port), pace_of(load, share), clock);
    pointers.push_back(&ports.back());
  }
  const auto time = run_and_time(workers, pointers);
  if (!time) return std::unexpected(time.error());
  PacedRun run;
  for (const auto& port : ports) {
    run.offered += port.offered();
    run.lost += port.lost();
    run.taken += port.taken();
    run.latency.add(port.latency());
  }
  run.mpps = 1000 * static_cast<double>(run.latency.total()) / time->longest_ns;
  run.waiting = time->waited_ns / time->sum_ns;
  return run;
}

}  // namespace millrace::bench
