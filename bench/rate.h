// The question: when packets arrive at a given rate, what does a load balancer pass, what does it
// lose, and how long does a packet wait?
//
// Other benchmarks here are closed loops: a worker that takes longer is asked less often. Here
// packets arrive whether it keeps up or not (paced_port.h), as in the KTH study of flow
// classification (2021), whose figures 5.3 and 5.7 this answers. Its traffic is 10,000 new flows a
// second among packets of established ones, and so is this: all connections take turns, which no
// cache likes, and of each thousand packets one begins a connection, another ends one; that is
// 10,000 a second at 10 million packets a second. Those are the same few again and again, each of
// which gives up its entry when it begins anew: so the table's load stays what it was told to be,
// and under a lock somebody writes.
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
  std::vector<double> loads{0.65};  ///< connections, of what the tables promise; up to 1
  std::uint64_t live = 200'000;     ///< connections, `kLeastLive` or more
  double seconds = 0.3;             ///< of a run
  unsigned queue = 1024;            ///< packets that may wait for a worker
  unsigned burst = 32;

  static constexpr std::array kPercents{50.0, 90.0, 99.0, 99.9};
  static constexpr std::uint64_t kBeginsOf = 1000;  ///< one packet in so many
  static constexpr std::uint64_t kLeastLive = kBeginsOf;
};

/// One table and sharing scheme with so many workers, at one load, offered so much.
struct RateResult {
  std::string table;
  std::string sharing;
  unsigned workers = 0;
  double load = 0;
  double offered_mpps = 0;
  std::uint64_t offered = 0;  ///< packets, of all repetitions, as the next five
  std::uint64_t forwarded = 0;
  std::uint64_t lost = 0;
  std::uint64_t opened = 0;   ///< connections
  std::uint64_t refused = 0;  ///< that found no room; their packets are served all the same
  LatencyBins latency;        ///< from arrival to send, of what was forwarded
  Spread mpps;                ///< forwarded by all workers together
  Spread gbps;                ///< the same in bits on the wire, without preamble, checksum and gap
  Spread lost_share;          ///< of the packets that were offered
  /// What so many percent of a run's forwarded packets took at most; `LatencyBins::kBeyond`: that,
  /// or more.
  std::array<Spread, RateOptions::kPercents.size()> latency_us;
  double waiting = 0;  ///< share of the workers' time spent waiting for each other; median
  Pages pages = Pages::huge;
};

struct RateReport {
  std::vector<RateResult> results;
  bool complete = false;  ///< false: `progress` ended it; results are of the runs until then
};

/// Measures all of it, contenders in turn. Errors: tables and sharing schemes none of which go
/// together (usage), no memory, or a contender that does not serve what it receives.
Result<RateReport> run_rate(const RateOptions& options, const Progress& progress);

}  // namespace millrace::bench
