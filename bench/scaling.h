// The question: how does throughput grow with the number of workers, under each sharing scheme?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "bench/usl.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

/// Kinds of traffic. `campus`: connections begin, go on and end. `flood`: each packet begins a
/// connection. `established`: no packet begins one.
enum class ScalingTraffic : std::uint8_t { campus, flood, established };
std::string_view to_string(ScalingTraffic traffic);
/// Returns the traffic with that name, or none.
std::optional<ScalingTraffic> scaling_traffic_named(std::string_view name);

/// `sharded` with one counter in which all workers count each packet: it shows what sharing a
/// single cache line costs.
inline constexpr std::string_view kSharedCounter = "sharded+counter";

struct ScalingOptions : Settings {
  std::vector<unsigned> workers{1, 2};
  std::vector<std::string> tables;   ///< empty: for each sharing scheme all that go with it
  std::vector<std::string> sharing;  ///< empty: all
  std::vector<ScalingTraffic> traffic{ScalingTraffic::campus, ScalingTraffic::flood,
                                      ScalingTraffic::established};
  std::uint64_t live = 200'000;  ///< connections; `flood` has five times as many
  unsigned burst = 32;           ///< packets a burst
};

/// Results of one combination, kind of traffic and number of workers.
struct ScalingResult {
  std::string table;
  std::string sharing;
  ScalingTraffic traffic = ScalingTraffic::campus;
  unsigned workers = 0;
  std::uint64_t packets = 0;  ///< in a pass
  Spread mpps;                ///< all workers together
  Spread ns_per_packet;       ///< on one core
  double waiting = 0;         ///< share of the workers' time spent waiting for each other; median
  /// Percentiles of the time of a burst from receive to send, over all workers.
  Percentiles latency_us;
  Pages pages = Pages::huge;
};

/// The throughput of a table and a sharing scheme with more workers than were measured.
struct ScalingPrediction {
  std::string table;
  std::string sharing;
  ScalingTraffic traffic = ScalingTraffic::campus;
  ScalabilityLaw law;
};

struct ScalingReport {
  std::vector<ScalingResult> results;
  std::vector<ScalingPrediction> predictions;
  std::string no_prediction;  ///< why nothing is predicted; empty: there are predictions
  bool complete = false;      ///< false: `progress` ended the measurement
};

/// Least number of distinct worker counts from which to predict. Only counts with a processor for
/// every worker are used.
inline constexpr std::size_t kCountsToPredict = 6;

/// Measures every combination, in turn. Errors: usage if none of the tables goes with any of the
/// sharing schemes; failed if memory is short, or if combinations do not open equally many
/// connections or do not serve every packet.
Result<ScalingReport> run_scaling(const ScalingOptions& options, const Progress& progress);

}  // namespace millrace::bench
