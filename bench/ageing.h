// The question: what does it cost to find idle connections, and how well are they found, by each
// ageing scheme and how often it looks?
//
// Campus traffic at a steady rate, in simulated time, so that every contender ends the same
// connections; each repetition runs `none` and all others in turn. What ageing costs is the
// difference to `none` in the same repetition: all that it does to a packet's way, caches included.
// Conversations take a quarter of the timeout at most, so that hardly any goes on after its end: to
// open it again would not be the scheme's cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct AgeingOptions : Settings {
  std::vector<std::string> schemes;  ///< empty: all but `none`, which always takes part
  std::vector<std::uint32_t> interval_ms{1000, 100, 10, 1};
  std::vector<unsigned> workers{1, 2};
  std::string table = "race";
  std::string sharing = "sharded";      ///< one that goes with the table
  std::uint64_t connections = 400'000;  ///< opened in all; each direction is tracked on its own
  std::uint64_t packets_per_connection = 10;  ///< on average, both directions together
  std::uint32_t timeout_ms = 500;
  unsigned burst = 32;

  /// Packets a second of simulated time.
  static constexpr std::uint64_t kRate = 2'000'000;
};

struct AgeingResult {
  std::string ageing;
  std::uint32_t interval_ms = 0;  ///< 0 with `none`
  unsigned workers = 0;
  Spread live;  ///< over the run, sampled
  Spread mpps;  ///< all workers together
  Spread ns_per_packet;
  Spread ageing_ns_per_packet;  ///< more than `none` in the same repetition
  /// Of that, the median's 95 % confidence interval, from the order of the repetitions; all of
  /// their range below six.
  Spread confidence;
  Percentiles burst_us;
  /// Connections that are there although their timeout has passed, against those that should be:
  /// averages over the run.
  double kept_too_long = 0;
  /// Connections opened beyond those that exact timeouts open: their predecessors had ended early.
  std::uint64_t ended_too_soon = 0;
  std::uint64_t timed_out = 0;
  Pages pages = Pages::huge;
};

struct AgeingReport {
  std::vector<AgeingResult> results;
  std::uint64_t packets = 0;
  double exact_live = 0;  ///< with exact timeouts, on average over the run
  bool complete = false;  ///< false: `progress` ended it
};

/// Errors: no memory, or workers that do not do what they are to do.
Result<AgeingReport> run_ageing(const AgeingOptions& options, const Progress& progress);

}  // namespace millrace::bench
