// The question: what does it cost to move a shard between running workers, and do workers with a
// skewed load do as much, once it is level, as with an even one?
//
// Each worker's queue gets a fixed part of the connections, by a hash of its own, as from a network
// card that nobody tells about shards: of N workers' packets (N - 1) / N belong to another one, and
// pass through a ring. Packets are served over and over, as fast as they are taken; a port gives no
// more while so many of its own are on their way that a ring might run full.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

/// The cases that are measured beside each other.
enum class LevelCase : std::uint8_t {
  even,      ///< all connections have as many packets; nothing moves
  moving,    ///< the same, while shards drawn at random move without a pause
  skewed,    ///< three connections have half of the packets; nothing moves
  levelled,  ///< the same, once shards have moved so that workers have as much to do
};
std::string_view to_string(LevelCase of);

struct LevelOptions : Settings {
  unsigned workers = 2;
  std::string table = "race";
  std::uint64_t live = 1'000'000;  ///< connections
  unsigned shards = 512;
  unsigned burst = 32;
  double seconds = 1;  ///< of each measurement
};

struct LevelResult {
  LevelCase of = LevelCase::even;
  Spread mpps;     ///< of all workers together, in slices of the measurements
  Spread of_even;  ///< in the even case's: each slice in its own
  Spread busiest;  ///< the busiest worker's packets, in the mean's
  // These count all repetitions together; 0 where nothing moves.
  std::uint64_t moves = 0;
  double connections_per_move = 0;
  Percentiles move_ms;  ///< from the decision to the last worker's marker
};

struct LevelReport {
  std::vector<LevelResult> results;
  Pages pages = Pages::huge;
  bool complete = false;  ///< false: `progress` ended it
};

/// Measures all of it, in turn. Errors: no memory; or a packet was dropped, or a connection opened
/// twice.
Result<LevelReport> run_level(const LevelOptions& options, const Progress& progress);

}  // namespace millrace::bench
