#include "bench/advise_trials.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/timed_run.h"
#include "config/config.h"

namespace millrace::bench {
namespace {

/// Packets of a step in which the capture's time advances, and bounds of the step in milliseconds.
/// Each step has a search for idle connections. A capture passes thousands of times faster than it
/// was taken: with shorter steps workers would do little but search.
constexpr double kPacketsAStep = 5000;
constexpr double kLeastStepMs = 10;
constexpr double kMostStepMs = 1000;
/// A combination drops out if it serves less than this share of the packets that `race` serves, in
/// all or through an entry.
constexpr double kServedLeast = 0.99;
/// Passes in a measurement of the room that a capture needs: the second pass finds the connections
/// that the first has left open.
constexpr unsigned kPasses = 2;
/// Capacities grow up to the first ones times this factor times the number of workers. That is
/// enough for every connection: all connections may belong to one worker, half-open connections may
/// have only a quarter of the capacity (factor 4), and a factor of 2 is spare.
constexpr std::size_t kRoomMost = 8;

/// Returns twice the number of connections, but at least 1000, rounded up to two significant
/// digits.
std::size_t room_for(double connections) {
  constexpr double kLeast = 1000;
  const double wanted = std::max(2 * connections, kLeast);
  const double unit = std::pow(10, std::floor(std::log10(wanted)) - 1);
  return static_cast<std::size_t>(std::ceil(wanted / unit) * unit);
}

double tracked_by(const WorkerCounters& counters) {
  return static_cast<double>(counters.verdict[static_cast<std::size_t>(Verdict::tracked)].value());
}
/// Share of the search's time for the first turns of all combinations.
constexpr double kFirstTurns = 0.3;
/// Least number of packets to which a capture is shortened.
constexpr std::size_t kPacketsLeast = 100'000;

}  // namespace

Result<Workers> Trials::make(const Combination& combination) const {
  Config config;
  config.workers = options_->workers;
  config.table.scheme = combination.table;
  config.sharing = combination.sharing;
  config.ageing.scheme = combination.ageing;
  config.ageing.interval_ms = step_ms_;
  config.table.capacity = capacity_;
  config.table.capacity_v6 = capacity_v6_;
  LineConfig line = line_config(config);
  line.pages = options_->pages;
  line.secret = Secret::from_seed(options_->seed);
  line.catch_up = true;
  return Workers::create(config.workers, line, config.function, function_run(config),
                         config.spread.entries);
}

Result<bool> Trials::prepare(Advice& advice, const Progress& progress) {
  if (!progress("looking at the capture")) return false;
  auto trace = profile_of(*capture_);
  if (!trace) return std::unexpected(trace.error());
  advice.trace = *trace;
  if (trace->connections() == 0)
    return std::unexpected(Error{"the capture has no connection: give another capture"});
  capacity_ = room_for(static_cast<double>(trace->connections_v4));
  capacity_v6_ = room_for(static_cast<double>(trace->connections_v6));
  const double pace_ms = 1000 * trace->seconds / static_cast<double>(trace->packets);
  step_ms_ = static_cast<unsigned>(std::clamp(kPacketsAStep * pace_ms, kLeastStepMs, kMostStepMs));
  if (!progress("finding out how many connections live at once")) return false;
  const auto seen = find_room();
  if (!seen) return std::unexpected(seen.error());
  advice.peak = seen->peak.value();
  const double lived = static_cast<double>(advice.peak) / static_cast<double>(trace->connections());
  capacity_ = room_for(lived * static_cast<double>(trace->connections_v4));
  capacity_v6_ = room_for(lived * static_cast<double>(trace->connections_v6));
  if (!progress("finding the room that connections need")) return false;
  const auto served = find_room();
  if (!served) return std::unexpected(served.error());
  if (served->refused.value() > 0)
    return std::unexpected(Error{
        "there is no memory for tables with room for every connection: give a shorter capture"});
  advice.capacity = capacity_;
  advice.capacity_v6 = capacity_v6_;
  take_for_right(*served);
  advice.tracked = tracked_once_ / served_once_;
  if (auto ok = shorten(static_cast<double>(combinations(options_->workers).size())); !ok)
    return std::unexpected(ok.error());
  advice.packets_timed = capture_->size();
  return true;
}

void Trials::take_for_right(const WorkerCounters& counters) {
  tracked_once_ = tracked_by(counters) / kPasses;
  served_once_ = static_cast<double>(served_by(counters)) / kPasses;
}

Result<void> Trials::shorten(double combinations) {
  const double pass_ns = 1e9 * kFirstTurns * options_->seconds / (kPasses * combinations);
  const auto most = std::max(static_cast<std::size_t>(pass_ns / ns_per_packet_), kPacketsLeast);
  if (capture_->size() <= most) return {};
  first_packets_.emplace(capture_->format());
  for (std::size_t i = 0; i < most; ++i) {
    const Capture::Packet& packet = capture_->packet(i);
    if (const auto kept = first_packets_->append(packet.timestamp_ns, packet.wire_length,
                                                 packet.bytes(), capture_->link(i));
        !kept)
      return std::unexpected(kept.error());
  }
  capture_ = &*first_packets_;
  auto workers = make({"race", "sharded", "wheel"});
  if (!workers) return std::unexpected(workers.error());
  const auto run = pass(*workers);
  if (!run) return std::unexpected(run.error());
  take_for_right(workers->counters());
  return {};
}

/// Divides the packets among the workers, and passes them `kPasses` times.
Result<TimedRun> Trials::pass(Workers& workers) {
  auto parts = parts_for(workers, *capture_, options_->seed + 1);
  if (!parts) return std::unexpected(parts.error());
  parts_ = std::move(*parts);
  return timed_run(workers, *capture_, parts_,
                   {.burst = options_->burst, .loops = kPasses, .step_ms = step_ms_}, clock_);
}

Result<WorkerCounters> Trials::find_room() {
  std::optional<WorkerCounters> seen;
  const std::size_t most = capacity_ * kRoomMost * options_->workers;
  for (;; capacity_ *= 2, capacity_v6_ *= 2) {
    auto workers = make({"race", "sharded", "wheel"});
    if (!workers) {
      if (!seen) return std::unexpected(workers.error());
      capacity_ /= 2;
      capacity_v6_ /= 2;
      return *seen;
    }
    const auto run = pass(*workers);
    if (!run) return std::unexpected(run.error());
    ns_per_packet_ = run->ns_per_packet / options_->workers;
    seen = workers->counters();
    const std::uint64_t without = seen->refused.value() + seen->over_budget.value();
    if (without == 0 || 2 * capacity_ > most) return *seen;
  }
}

Result<void> Trials::run(Candidate& candidate, double ms) {
  Tried& tried = candidate.tried;
  auto workers = make(tried.combination);
  if (!workers) {
    tried.failed = workers.error().message;
    return {};
  }
  const double pass_ms = ns_per_packet_ * static_cast<double>(capture_->size()) * 1e-6;
  // The first pass opens the connections that later passes find.
  const auto loops = static_cast<std::uint32_t>(std::clamp(std::ceil(ms / pass_ms), 2.0, 1e5));
  const auto run =
      timed_run(*workers, *capture_, parts_,
                {.burst = options_->burst, .loops = loops, .step_ms = step_ms_}, clock_);
  if (!run) return std::unexpected(run.error());
  candidate.ns.push_back(run->ns_per_packet);
  candidate.waiting.push_back(run->waiting);
  const TableReport v4 = workers->report_v4();
  const TableReport v6 = workers->report_v6();
  tried.memory_bytes = v4.memory_bytes + v6.memory_bytes;
  tried.pages = std::max(v4.pages, v6.pages);
  const WorkerCounters counters = workers->counters();
  if (const std::uint64_t refused = counters.refused.value(); refused > 0)
    tried.failed =
        fmt::format("found no room for {} new connections, although it promises room", refused);
  const auto falls_short = [loops](double packets, double once) {
    return packets < kServedLeast * once * loops;
  };
  if (falls_short(static_cast<double>(served_by(counters)), served_once_))
    tried.failed =
        fmt::format("served {} packets; race serves {:.0f}, and {:.0f} % of that number are needed",
                    served_by(counters), served_once_ * loops, 100 * kServedLeast);
  else if (falls_short(tracked_by(counters), tracked_once_))
    tried.failed = fmt::format(
        "served {:.0f} packets through an entry; race serves {:.0f} so, and {:.0f} % of that "
        "number are needed",
        tracked_by(counters), tracked_once_ * loops, 100 * kServedLeast);
  return {};
}

}  // namespace millrace::bench
