// The question: how evenly does levelling spread packets over many workers, and how many workers
// does a changing load need? Computes what RSS++'s figures 11 and 12b show.
//
// Generated packets are parsed and hashed. After that only numbers matter: how many packets and
// bytes each shard gets in each interval of levelling (simulated_workers.h). So there may be more
// workers than this machine has processors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/simulated_workers.h"
#include "bench/spread.h"
#include "millrace/types.h"
#include "traffic/generate.h"

namespace millrace::bench {

struct SimulationOptions {
  std::vector<unsigned> workers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::uint64_t packets = 15'000'000;  ///< packets of each kind of traffic
  double peak = 3.5;                   ///< highest load, in capacities of one worker
  double move_ms = 5;                  ///< duration of a move
  unsigned shards = 512;
  std::uint64_t seed = 1;

  static constexpr unsigned kScaling = 15;  ///< workers for the changing load, as in RSS++'s figure
};

/// Imbalance of `workers` workers that serve one kind of traffic; the spreads are over seconds.
struct ImbalanceResult {
  Profile traffic = Profile::campus;
  Levelling levelling = Levelling::none;
  unsigned workers = 0;
  Spread packets;  ///< `imbalance_percent` of the packets of each second
  Spread bytes;    ///< `imbalance_percent` of the bytes on the wire of each second
  double moves_a_second = 0;
};

/// A second of the changing load.
struct ScalingResult {
  unsigned second = 0;
  double load = 0;      ///< at the second's beginning, in capacities of one worker
  unsigned in_use = 0;  ///< workers that have shards in the second's last step
  double lost = 0;      ///< share of the packets that are lost: mean of the second's steps
  unsigned moves = 0;
};

struct LevelSimulation {
  std::vector<ImbalanceResult> imbalance;
  std::vector<ScalingResult> scaling;
  bool complete = false;  ///< false: `progress` ended the simulation
};

std::string_view to_string(Levelling levelling);

/// Computes all results. The same options give the same results. Errors (failed): no memory.
Result<LevelSimulation> simulate_level(const SimulationOptions& options, const Progress& progress);

}  // namespace millrace::bench
