// The question: what does it cost to move a shard between running workers, and do workers reach the
// throughput of an even load once their skewed load is levelled?
//
// Each worker's queue gets a fixed part of the connections, by another hash than the shards', as
// from a network card that does not know the shards: with N workers a share of about (N - 1) / N of
// the packets in a queue belongs to other workers, and passes through rings. Packets are served
// over and over, as fast as workers receive them; a port receives no more while 256 of its packets
// are on their way, so that no ring runs full. Latency is measured at a constant rate, a share of
// the throughput: otherwise packets would arrive only as fast as workers receive them, and would
// hardly wait.
//
// The loads of many workers are also simulated (level_simulation.h).
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

/// Cases whose throughput is compared.
enum class LevelCase : std::uint8_t {
  even,      ///< all connections have equally many packets; nothing moves
  moving,    ///< the load of `even`; shards drawn at random move without a pause
  skewed,    ///< three connections have half of the packets; nothing moves
  levelled,  ///< the load of `skewed`, after shards have moved to make workers' loads equal
};
std::string_view to_string(LevelCase of);

struct LevelOptions : Settings {
  unsigned workers = 2;
  std::string table = "race";
  std::uint64_t live = 1'000'000;  ///< connections
  unsigned shards = 512;
  unsigned burst = 32;
  double seconds = 1;  ///< length of each case's measurement in a repetition
  /// Rate at which latency is measured, as a share of the workers' throughput with an even load.
  double offered = 0.3;
  /// Options of the simulation; its `seed` and `shards` are replaced by those of `LevelOptions`.
  SimulationOptions simulation;
};

struct LevelResult {
  LevelCase of = LevelCase::even;
  Spread mpps;     ///< throughput of all workers together, by slice
  Spread of_even;  ///< `mpps` divided by that of the even case, slice by slice
  Spread busiest;  ///< the busiest worker's packets divided by the workers' mean, by slice
  // Moves of all repetitions; 0, or empty, except in the case `moving`.
  std::uint64_t moves = 0;
  double connections_per_move = 0;
  Percentiles move_ms;  ///< duration of a move: 50 %, 99 % and 100 %
};

/// Kinds of packets of an even load, while packets arrive at a given rate.
enum class LevelPackets : std::uint8_t {
  at_rest,          ///< all packets, while nothing moves
  while_moving,     ///< all packets, while shards drawn at random move without a pause
  of_moving_shard,  ///< packets received while their shard moves
};
std::string_view to_string(LevelPackets of);

/// Time of one kind of packets from arrival to send, in microseconds, by slice.
struct LevelLatency {
  LevelPackets of = LevelPackets::at_rest;
  std::uint64_t packets = 0;  ///< packets in all repetitions
  Spread mean;
  /// Percentiles at `kPercents`; `LatencyBins::kBeyond` means that time or more.
  std::array<Spread, 3> percentiles;

  static constexpr std::array kPercents{50.0, 95.0, 99.0};
};

struct LevelReport {
  std::vector<LevelResult> results;
  std::vector<LevelLatency> latency;
  // Counted while packets arrived at a given rate:
  std::uint64_t arrived = 0;
  std::uint64_t lost = 0;  ///< packets that found a queue full
  std::uint64_t moves_at_rate = 0;
  Percentiles move_ms_at_rate;
  LevelSimulation simulation;
  Pages pages = Pages::huge;
  bool complete = false;  ///< false: `progress` ended the measurement
};

/// Measures all cases, then simulates many workers. Errors (failed): no memory or no thread;
/// packets that were not all received twice in ten minutes; a packet that was dropped; or a
/// connection that was not opened exactly once and kept.
Result<LevelReport> run_level(const LevelOptions& options, const Progress& progress);

}  // namespace millrace::bench
