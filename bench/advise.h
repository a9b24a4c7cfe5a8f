// The question: which table, sharing and ageing scheme pass a capture fastest, on this machine?
//
// Every combination that could be meant passes the capture, over and over, with time going on;
// those that fall behind drop out, round after round, and who is left is measured longer.
// Connections are what `replay` without a configuration has: each direction on its own.
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

/// All combinations for so many workers, but those with ageing `none`; for one worker only with
/// sharing `sharded`.
std::vector<Combination> combinations(unsigned workers);

/// The default combination of a configuration that names none (`sharing_of`); on the kernel's
/// interfaces where `is_kernels`.
Combination usual(unsigned workers, bool is_kernels);

struct AdviceOptions : Settings {
  unsigned workers = 1;
  /// 0 to 3600, once the capture is read. A turn in each round and five in the final are measured
  /// in any case, as far as eight seconds more suffice.
  double seconds = 60;
  unsigned burst = 32;
};

/// Rounds in which combinations drop out; who is in the next one is a finalist.
inline constexpr unsigned kRounds = 3;

/// What was seen of one combination, in the last round that it took part in.
struct Tried {
  Combination combination;
  unsigned round = 1;    ///< from 1; `kRounds + 1`: a finalist
  Spread ns_per_packet;  ///< of one core
  double mostly = 0;     ///< nanoseconds a packet that three quarters of its turns did not exceed
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
  std::size_t packets_timed = 0;  ///< the first ones, of a capture that is long for the time
  /// The one that is recommended first, then finalists, then those that stayed longest; by time.
  /// Empty where the first round was not ended.
  std::vector<Tried> tried;
  /// The fastest one, where its turns do not tell it apart from `usual`, which is recommended then.
  std::optional<Combination> no_faster;
  /// The one that is recommended on the kernel's interfaces, where workers share their tables:
  /// their queues know nothing of who has a connection. Of several workers only.
  std::optional<Tried> shared;
  unsigned late_in = 0;   ///< the round in which time was up; 0: none, `kRounds + 1`: the final
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
