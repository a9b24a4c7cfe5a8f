// The question: which table, sharing and ageing scheme pass a capture fastest, on this machine?
//
// Every combination that could be meant passes the capture, over and over, with time going on;
// those that fall behind drop out, round after round, and who is left is measured longer.
// Connections are what `replay` without a configuration has: each direction on its own.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// All combinations for so many workers, but those with ageing `none`; for one worker only with
/// sharing `sharded`.
std::vector<Combination> combinations(unsigned workers);

struct AdviceOptions : Settings {
  unsigned workers = 1;
  double seconds = 60;  ///< 0 to 3600; three rounds and five final turns are measured in any case
  unsigned burst = 32;
};

/// Rounds in which combinations drop out; who is in the next one is a finalist.
inline constexpr unsigned kRounds = 3;

/// What was seen of one combination, in the last round that it took part in.
struct Tried {
  Combination combination;
  unsigned round = 1;    ///< from 1; `kRounds + 1`: a finalist
  Spread ns_per_packet;  ///< of one core
  double behind = 0;     ///< of the best in that round: 0.1 is a tenth more time
  double waiting = 0;    ///< share of the workers' time spent waiting for each other; median
  std::size_t memory_bytes = 0;
  Pages pages = Pages::huge;
  std::string failed;  ///< why it cannot be had; empty: it can
};

struct Advice {
  TraceProfile trace;
  /// Most connections that lived at once, with default timeouts: with several workers the sum of
  /// what each had at most, an upper bound.
  std::uint64_t peak = 0;
  /// Share, 0 to 1, of the packets served that have an entry, in the room below.
  double tracked = 0;
  /// Connections that a configuration should have room for.
  std::size_t capacity = 0;
  std::size_t capacity_v6 = 0;
  /// Finalists first, then who stayed longest; by time. Empty where the first round was not ended.
  std::vector<Tried> tried;
  bool complete = false;  ///< false: `progress` ended it

  const Tried& best() const { return tried.front(); }
};

/// Starts `options.workers` threads, which have ended when it returns; `capture` is only read, and
/// `progress` called by the calling thread. Errors: a capture without connections, or where none of
/// the combinations works (failed), no memory.
Result<Advice> run_advice(const Capture& capture, const AdviceOptions& options,
                          const Progress& progress);

/// How good the advice was: every combination measured as long as the finalists were; then, twice
/// as often and in turn, those within 15 % of the best, and the one advised.
struct Exhausted {
  Advice advice;
  std::vector<Tried> all;  ///< those measured twice (`round` 2), then the others; each by time
  bool complete = false;

  const Tried& advised() const;
};
Result<Exhausted> run_exhaustive(const Capture& capture, const AdviceOptions& options,
                                 const Progress& progress);

}  // namespace millrace::bench
