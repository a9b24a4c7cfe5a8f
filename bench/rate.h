// The question: when packets arrive at a given rate, how many does a load balancer forward, how
// many does it lose, and how long does a packet wait?
//
// Most other benchmarks are closed loops: a slower worker gets packets less often. Here packets
// arrive whether the worker keeps up or not (paced_port.h), as in the KTH study of flow
// classification (2021), figures 5.3 and 5.7. The study's traffic has 10,000 new flows a second
// among packets of established ones. The traffic here is alike: connections take turns, the worst
// case for caches, and of each thousand packets one begins a connection and another ends one; at 10
// million packets a second that makes 10,000 new connections a second. The same few connections
// begin again and again, and each replaces its previous entry when it begins again. The table's
// load therefore stays constant, and tables under a lock have a writer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/arrivals.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct RateOptions : Settings {
  std::vector<std::string> tables{"race", "cuckoo", "cuckoo++", "chained", "hopscotch", "std"};
  std::vector<std::string> sharing{"sharded", "mutex"};
  std::vector<unsigned> workers{1, 2};
  std::vector<double> offered_mpps{1, 2, 4, 6, 8, 10, 15, 20};  ///< to all workers together
  std::vector<double> loads{0.65};  ///< connections, as a share of the promised capacity; up to 1
  std::uint64_t live = 200'000;     ///< connections, `kLeastLive` or more
  double seconds = 0.3;             ///< length of a run
  unsigned queue = 1024;            ///< packets that may wait for a worker
  unsigned burst = 32;

  static constexpr std::array kPercents{50.0, 90.0, 99.0, 99.9};
  static constexpr std::uint64_t kBeginsOf = 1000;  ///< one packet in this many begins a connection
  static constexpr std::uint64_t kLeastLive = kBeginsOf;
};

/// Results of one table and sharing scheme, number of workers, load and offered rate.
struct RateResult {
  std::string table;
  std::string sharing;
  unsigned workers = 0;
  double load = 0;
  double offered_mpps = 0;
  std::uint64_t offered = 0;  ///< packets; this and the next five are sums of all repetitions
  std::uint64_t forwarded = 0;
  std::uint64_t lost = 0;
  std::uint64_t opened = 0;  ///< connections
  /// New connections that found no room, and are served without an entry.
  std::uint64_t refused = 0;
  LatencyBins latency;  ///< from arrival to send, of forwarded packets
  Spread mpps;          ///< forwarded by all workers together
  Spread gbps;          ///< `mpps` in Gbit/s on the wire, without preamble, checksum and gap
  Spread lost_share;    ///< share of the offered packets
  /// Latency percentiles (`kPercents`) of a run's forwarded packets. `LatencyBins::kBeyond` means
  /// that time or more.
  std::array<Spread, RateOptions::kPercents.size()> latency_us;
  double waiting = 0;  ///< share of the workers' time spent waiting for each other; median
  Pages pages = Pages::huge;
};

struct RateReport {
  std::vector<RateResult> results;
  bool complete = false;  ///< false: `progress` ended the measurement; `results` has finished runs
};

/// Measures every contender, in turn. Errors: usage if none of the tables goes with any of the
/// sharing schemes; failed if memory is short, or a contender does not serve what it receives.
Result<RateReport> run_rate(const RateOptions& options, const Progress& progress);

}  // namespace millrace::bench
