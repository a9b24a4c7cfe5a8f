// The question: what does it cost to move a shard between running workers, and do workers with a
// skewed load do as much, once it is level, as with an even one?
//
// Each worker's queue gets a fixed part of the connections, by a hash of its own, as from a network
// card that does not know the shards: with N workers a share of (N - 1) / N of a worker's packets
// belongs to other workers, and passes through rings. Packets are served over and over, as fast as
// they are taken; a port stops giving packets while enough of its own are on their way to fill a
// ring. Latency is measured at a constant rate below that: a closed loop would wait for itself.
//
// The loads of many workers are simulated beside it (level_simulation.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/level_simulation.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

/// The cases that are measured beside each other.
enum class LevelCase : std::uint8_t {
  even,      ///< all connections have as many packets; nothing moves
  moving,    ///< the load of `even`; shards drawn at random move without a pause
  skewed,    ///< three connections have half of the packets; nothing moves
  levelled,  ///< the load of `skewed`, after shards have moved so that workers' loads are equal
};
std::string_view to_string(LevelCase of);

struct LevelOptions : Settings {
  unsigned workers = 2;
  std::string table = "race";
  std::uint64_t live = 1'000'000;  ///< connections
  unsigned shards = 512;
  unsigned burst = 32;
  double seconds = 1;  ///< length of each measurement
  /// Rate at which latency is measured, as a share of the workers' throughput with an even load.
  double offered = 0.3;
  SimulationOptions simulation;  ///< `seed` and `shards` of these options count, not its own
};

struct LevelResult {
  LevelCase of = LevelCase::even;
  Spread mpps;     ///< throughput of all workers together, in slices of the measurements
  Spread of_even;  ///< ratio of each slice to its slice of the even case
  Spread busiest;  ///< ratio of the busiest worker's packets to the mean
  // These count all repetitions together; 0 where nothing moves.
  std::uint64_t moves = 0;
  double connections_per_move = 0;
  Percentiles move_ms;  ///< from the decision to the last worker's marker
};

/// Packets of an even load that come at a given rate.
enum class LevelPackets : std::uint8_t {
  at_rest,          ///< all packets, while nothing moves
  while_moving,     ///< all packets, while shards drawn at random move without a pause
  of_moving_shard,  ///< packets that come while their shard is on its way
};
std::string_view to_string(LevelPackets of);

/// Time of these packets from arrival to send, in microseconds, in slices of the measurements.
struct LevelLatency {
  LevelPackets of = LevelPackets::at_rest;
  std::uint64_t packets = 0;  ///< packets in all repetitions
  Spread mean;
  std::array<Spread, 3>
      percentiles;  ///< at `kPercents`; `LatencyBins::kBeyond` means that time or more

  static constexpr std::array kPercents{50.0, 95.0, 99.0};
};

struct LevelReport {
  std::vector<LevelResult> results;
  std::vector<LevelLatency> latency;
  // While packets came at a given rate:
  std::uint64_t arrived = 0;
  std::uint64_t lost = 0;  ///< packets that found a queue full
  std::uint64_t moves_at_rate = 0;
  Percentiles move_ms_at_rate;
  LevelSimulation simulation;
  Pages pages = Pages::huge;
  bool complete = false;  ///< false: `progress` ended it
};

/// Measures all of it, in turn. Errors: no memory; or a packet was dropped, or a connection opened
/// twice.
Result<LevelReport> run_level(const LevelOptions& options, const Progress& progress);

}  // namespace millrace::bench
