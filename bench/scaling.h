// The question: what do more workers bring, under each way to share connections?
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

/// What packets are like: `campus` opens, uses and leaves connections; of `flood` each opens one;
/// of `established` none does.
enum class ScalingTraffic : std::uint8_t { campus, flood, established };
std::string_view to_string(ScalingTraffic traffic);
std::optional<ScalingTraffic> scaling_traffic_named(std::string_view name);

/// `sharded`, and beside it one counter that all workers count each packet in: what that costs.
inline constexpr std::string_view kSharedCounter = "sharded+counter";

struct ScalingOptions : Settings {
  std::vector<unsigned> workers{1, 2};
  std::vector<std::string> tables;   ///< empty: all that go with a sharing scheme
  std::vector<std::string> sharing;  ///< empty: all there are
  std::vector<ScalingTraffic> traffic{ScalingTraffic::campus, ScalingTraffic::flood,
                                      ScalingTraffic::established};
  std::uint64_t live = 200'000;  ///< connections of campus and established; a flood has five times
  unsigned burst = 32;
};

/// One combination on one kind of traffic with so many workers.
struct ScalingResult {
  std::string table;
  std::string sharing;
  ScalingTraffic traffic = ScalingTraffic::campus;
  unsigned workers = 0;
  std::uint64_t packets = 0;  ///< of a pass
  Spread mpps;                ///< all workers together
  Spread ns_per_packet;       ///< of one core
  double waiting = 0;         ///< share of the workers' time spent waiting for each other; median
  Percentiles latency_us;     ///< from receive to send; of all workers
  Pages pages = Pages::huge;
};

/// What a table and a sharing scheme would do with more workers than were measured.
struct ScalingPrediction {
  std::string table;
  std::string sharing;
  ScalingTraffic traffic = ScalingTraffic::campus;
  ScalabilityLaw law;
};

struct ScalingReport {
  std::vector<ScalingResult> results;
  std::vector<ScalingPrediction> predictions;
  std::string no_prediction;  ///< why there is none; empty where there are
  bool complete = false;      ///< false: `progress` ended it
};

/// Distinct worker counts, each with a processor for every worker, below which nothing is
/// predicted.
inline constexpr std::size_t kCountsToPredict = 6;

/// Measures all of it, combinations in turn. Errors: tables and sharing schemes none of which go
/// together (usage), no memory, or workers that do not do what one does.
Result<ScalingReport> run_scaling(const ScalingOptions& options, const Progress& progress);

}  // namespace millrace::bench
