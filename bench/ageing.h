// The question: what does each ageing scheme cost at each interval, and how close to their timeout
// does it end idle connections?
//
// The traffic is campus traffic at a steady rate, in simulated time, so that with every contender
// the same connections become idle. Each repetition runs `none` and all other contenders in turn.
// The cost of ageing is the difference to `none` with as many workers in the same repetition:
// everything that ageing adds to a packet's way, its effect on caches included. Conversations last
// a quarter of the timeout at most, so that hardly any connection expires between two of its
// packets: the cost of opening an expired connection again would not be the ageing scheme's.
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
  std::vector<std::string> schemes;  ///< beside `none`, which always takes part; empty: all
  std::vector<std::uint32_t> interval_ms{1000, 100, 10, 1};
  std::vector<unsigned> workers{1, 2};
  std::string table = "race";
  std::string sharing = "sharded";      ///< must go with the table
  std::uint64_t connections = 400'000;  ///< opened in all; each direction is tracked on its own
  std::uint64_t packets_per_connection = 10;  ///< on average, both directions together
  std::uint32_t timeout_ms = 500;
  unsigned burst = 32;  ///< packets a burst

  /// Packets a second of simulated time.
  static constexpr std::uint64_t kRate = 2'000'000;
};

struct AgeingResult {
  std::string ageing;
  std::uint32_t interval_ms = 0;  ///< 0 with `none`
  unsigned workers = 0;
  Spread live;  ///< live connections, sampled over the run
  Spread mpps;  ///< all workers together
  Spread ns_per_packet;
  /// `ns_per_packet` less that of `none`, with as many workers in the same repetition.
  Spread ageing_ns_per_packet;
  /// 95 % confidence interval of the median of `ageing_ns_per_packet` (`confidence_of`). With fewer
  /// than six repetitions it is their whole range.
  Spread confidence;
  Percentiles burst_us;
  /// Excess of the average number of live connections over the average with exact timeouts, as a
  /// share of that average; 0 if there is no excess.
  double kept_too_long = 0;
  /// Opened connections less those that exact timeouts would have opened, at least 0: that many
  /// expired too soon and were opened again. From the last repetition.
  std::uint64_t ended_too_soon = 0;
  std::uint64_t timed_out = 0;
  Pages pages = Pages::huge;
};

struct AgeingReport {
  std::vector<AgeingResult> results;
  std::uint64_t packets = 0;
  double exact_live = 0;  ///< live connections with exact timeouts, average over the run
  bool complete = false;  ///< false: `progress` ended the measurement
};

/// Measures every contender. Errors (failed): no memory, no thread, or workers that do not serve
/// every packet.
Result<AgeingReport> run_ageing(const AgeingOptions& options, const Progress& progress);

}  // namespace millrace::bench
