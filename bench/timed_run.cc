#include "timed_run.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "shard/split.h"

namespace millrace::bench {
namespace {

/// A worker's port that measures the time of each burst from receive to send.
class StampedPort final : public Port {
 public:
  StampedPort(ReplayPort port, unsigned worker, const CycleClock& clock, const OnBurst& on_burst)
      : port_(std::move(port)), worker_(worker), clock_(&clock), on_burst_(&on_burst) {}

  LinkType link_type() const override { return port_.link_type(); }
  bool receive(Burst& burst) override {
    const bool more = port_.receive(burst);
    if (burst.size == 0) return more;
    arrived_[received_++ % arrived_.size()] = clock_->begin();
    if (*on_burst_) (*on_burst_)(worker_, burst);
    return more;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    port_.send(burst, forward);
    if (burst.size == 0) return;
    const double ns = clock_->ns_since(arrived_[sent_++ % arrived_.size()]);
    burst_us.push_back(static_cast<float>(ns / 1000));
  }

  std::vector<float> burst_us;

 private:
  ReplayPort port_;
  unsigned worker_;
  const CycleClock* clock_;
  const OnBurst* on_burst_;
  std::array<std::uint64_t, std::size_t{2} * kBurstsInFlight> arrived_{};
  std::size_t received_ = 0;
  std::size_t sent_ = 0;
};

}  // namespace

Result<std::vector<CapturePart>> parts_for(Workers& workers, const Capture& capture,
                                           std::uint64_t seed) {
  const auto spread = spreads().front().create(Secret::from_seed(seed));
  const Indirection indirection(512, workers.count());
  const auto entries = shards_of(capture, *spread, indirection, workers.steering());
  if (!entries) return std::unexpected(entries.error());
  return split(*entries, indirection, workers.count());
}

Result<WorkersTime> run_and_time(Workers& workers, std::span<Port* const> ports) {
  if (auto ok = workers.run(ports); !ok) return std::unexpected(ok.error());
  WorkersTime sum;
  for (unsigned n = 0; n < workers.count(); ++n) {
    const Workers::Time time = workers.time(n);
    const auto elapsed_ns = static_cast<double>(time.elapsed_ns);
    sum.longest_ns = std::max(sum.longest_ns, elapsed_ns);
    sum.sum_ns += elapsed_ns;
    sum.waited_ns += static_cast<double>(time.waited_ns);
  }
  return sum;
}

Result<TimedRun> timed_run(Workers& workers, const Capture& capture,
                           const std::vector<CapturePart>& parts, const ReplayOptions& options,
                           const CycleClock& clock, const OnBurst& on_burst) {
  std::deque<StampedPort> ports;
  std::vector<Port*> pointers;
  for (const CapturePart& part : parts) {
    auto port = ReplayPort::create(capture, options, nullptr, part);
    if (!port) return std::unexpected(port.error());
    ports.emplace_back(std::move(*port), part.number, clock, on_burst);
    ports.back().burst_us.reserve(part.positions.size() * options.loops / options.burst + 64);
    pointers.push_back(&ports.back());
  }
  const auto time = run_and_time(workers, pointers);
  if (!time) return std::unexpected(time.error());
  const auto packets = static_cast<double>(capture.size() * options.loops);
  TimedRun run{.mpps = 1000 * packets / time->longest_ns,
               .ns_per_packet = time->sum_ns / packets,
               .waiting = time->waited_ns / time->sum_ns,
               .burst_us = {}};
  for (const StampedPort& port : ports)
    run.burst_us.insert(run.burst_us.end(), port.burst_us.begin(), port.burst_us.end());
  return run;
}

}  // namespace millrace::bench
