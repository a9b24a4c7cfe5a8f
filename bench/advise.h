// The question: which table, sharing and ageing scheme pass a capture fastest, on this machine?
//
// Every combination passes the capture repeatedly, with timestamps that keep rising from pass to
// pass. In each round the slow combinations drop out, and the remaining ones are measured for
// longer. As in `replay` without a configuration, each direction is a connection of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "bench/trace.h"
#include "millrace/memory.h"
#include "millrace/types.h"
#include "port/capture.h"

namespace millrace::bench {

struct Combination {
  std::string table;
  std::string sharing;
  std::string ageing;

  friend bool operator==(const Combination&, const Combination&) = default;
};

/// Returns all combinations for that many workers, except those with ageing `none`. For one worker
/// returns only those with sharing `sharded`.
std::vector<Combination> combinations(unsigned workers);

/// Returns the combination of a configuration that names no schemes (`sharing_of`). `is_kernels`:
/// the ports are interfaces of the kernel.
Combination usual(unsigned workers, bool is_kernels);

struct AdviceOptions : Settings {
  unsigned workers = 1;
  /// Time for the whole search, reading the capture not included; 0 to 3600. The first turn of each
  /// combination in a round, and its first five in the final, may begin up to eight seconds after
  /// that time.
  double seconds = 60;
  unsigned burst = 32;  ///< packets a burst
};

/// Rounds in which combinations drop out. Those that stay after the last round are finalists.
inline constexpr unsigned kRounds = 3;

/// Measurements of one combination, from the last finished round in which it took part.
struct Tried {
  Combination combination;
  unsigned round = 1;    ///< number of that round, from 1; `kRounds + 1`: the final
  Spread ns_per_packet;  ///< on one core
  double mostly = 0;     ///< upper quartile of the combination's turns, in nanoseconds a packet
  /// Excess of the median over the round's least median: 0.1 is a tenth more.
  double behind = 0;
  double waiting = 0;  ///< share of the workers' time spent waiting for each other; median
  std::size_t memory_bytes = 0;
  Pages pages = Pages::huge;
  std::string failed;  ///< why this combination does not work; empty: it works
};

struct Advice {
  TraceProfile trace;
  /// Most connections that were live at once, with default timeouts. With several workers this
  /// is the sum of each worker's maximum, which is an upper bound.
  std::uint64_t peak = 0;
  /// Share, 0 to 1, of the served packets that have an entry, with the capacities below.
  double tracked = 0;
  /// Connections for which a configuration should have room: IPv4, then IPv6.
  std::size_t capacity = 0;
  std::size_t capacity_v6 = 0;
  /// Packets of a timed pass. If the capture is too long for `AdviceOptions::seconds`, only its
  /// first packets are passed.
  std::size_t packets_timed = 0;
  /// The recommended combination first. The others follow by the last round in which they took
  /// part, the latest first, and within a round by time; failed ones come last. Empty if `progress`
  /// ended the search before the end of the first round.
  std::vector<Tried> tried;
  /// The fastest combination, if the default (`usual`) is recommended instead because the default
  /// is not measurably slower (`is_told_apart`). None: the recommended combination is the fastest.
  std::optional<Combination> no_faster;
  /// The combination recommended for interfaces of the kernel, where workers share their tables
  /// because any queue may get a connection's packets. None with one worker, or if no combination
  /// that shares tables works.
  std::optional<Tried> shared;
  /// Round in which time was up before every combination had a turn; 0: none, `kRounds + 1`: the
  /// final.
  unsigned late_in = 0;
  bool complete = false;  ///< false: `progress` ended the search

  const Tried& best() const { return tried.front(); }
};

/// Searches for the fastest combination. Starts up to `options.workers` threads at a time, which
/// have ended when the function returns. `capture` is only read; `progress` is called on the
/// calling thread. Errors (failed): a capture without connections, no combination that works, no
/// memory, or no thread.
Result<Advice> run_advice(const Capture& capture, const AdviceOptions& options,
                          const Progress& progress);

/// The advice, and an exhaustive measurement to judge it by: every combination is measured, in
/// turns as long as a finalist's. Then the combinations within 15 % of the best, and the advised
/// one, are measured again, in twice as many turns.
struct Exhausted {
  Advice advice;
  /// Combinations measured again (`round` 2), then the rest; both parts sorted by time.
  std::vector<Tried> all;
  bool complete = false;

  /// Returns the advised combination's place in `all`.
  const Tried& advised() const;
};
/// Runs `run_advice`, then measures every combination. Errors: as `run_advice`.
Result<Exhausted> run_exhaustive(const Capture& capture, const AdviceOptions& options,
                                 const Progress& progress);

}  // namespace millrace::bench
