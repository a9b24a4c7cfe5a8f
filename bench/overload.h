// The question: when more connections are offered than the tables hold, what becomes of established
// and of new connections, by policy and table, on one worker and on several?
//
// First, connections are established up to four fifths of the capacity, or fewer if fewer are
// offered in all. Then their packets go on in both directions while the other connections begin,
// evenly between these packets. Nine in ten of the other connections are SYNs with a forged source
// address, one in ten is from a client that completes its handshake and sends a request. A worker's
// port makes the packets of the worker's clients and judges what the worker's line sends
// (overload_port.h); the port's own time is not counted. To show what overload costs, the same
// connections also pass tables with room for all of them, in the same repetition.
//
// Each worker has a table of its own, for the clients that the default spread assigns to the
// worker. With several workers the numbers of clients are unequal: if the tables are exactly equal
// parts of the capacity, some are full before the others, as in the KTH study of flow
// classification (2021), figure 5.6.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct OverloadOptions : Settings {
  std::vector<std::string> policies;  ///< empty: all
  std::vector<unsigned> offered_percent{50, 80, 100, 150, 200};
  std::vector<std::string> tables{"race"};
  std::vector<unsigned> workers{1};
  std::vector<std::string> divisions{"room"};
  std::string ageing = "wheel";
  std::uint64_t capacity = 200'000;  ///< 100 to 10,000,000; at least as many as workers
  unsigned half_open_percent = 25;   ///< limit of half-open connections, in % of the capacity
  unsigned burst = 32;               ///< packets a burst

  static constexpr std::uint64_t kMaxCapacity = 10'000'000;
  static constexpr unsigned kMaxPercent = 1000;
};

struct PolicyResult {
  std::string policy;
  std::string table;
  unsigned workers = 0;
  std::string division;
  unsigned offered_percent = 0;  ///< all connections, in % of the capacity
  std::uint64_t established = 0;
  std::uint64_t packets = 0;  ///< all packets of the measured part
  /// Share of the packets due on established connections that were sent with the right address: to
  /// the client's backend or, for replies, from the virtual address.
  double established_goodput = 0;
  std::uint64_t misdirected = 0;  ///< packets sent to or from a wrong address
  std::uint64_t begun = 0;        ///< new connections of genuine clients: a tenth of the new ones
  /// Share of `begun` whose packets were all sent with the right address; 1 if no connection began.
  double new_served = 0;
  double new_refused = 0;  ///< share of new connections, forged ones included, that got no entry
  /// Share of the packets due that were sent with the right address. Packets are due on established
  /// connections and on the new connections of genuine clients, from both ends.
  double goodput = 0;
  /// Connections that got entries and began before the first one that found a table full, as a
  /// share of the capacity; assumes that all workers are equally fast. None: each connection found
  /// room.
  std::optional<double> first_refused_load;
  Spread mpps;             ///< all workers together
  Spread ns_per_packet;    ///< all packets, on one core
  Spread relative_rate;    ///< `mpps`, divided by the `mpps` of tables with room for all
  std::uint64_t live = 0;  ///< connections at the end
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;        ///< packets that got no entry because the table was full
  std::uint64_t refused_early = 0;  ///< part of `refused`: the table was below its capacity
  /// Packets that got no entry because too many connections were half open.
  std::uint64_t over_budget = 0;
};

struct OverloadReport {
  std::vector<PolicyResult> results;
  bool complete = false;  ///< false: `progress` ended the measurement
};

/// Returns the policies: the values that the configuration key `when_full` may have.
std::vector<std::string> overload_policies();
/// Returns the ways in which several workers divide the capacity. `room`: each worker gets more
/// than an equal part, as in `Workers`, enough that together they hold the whole capacity although
/// their numbers of clients differ. `even`: exactly equal parts.
std::vector<std::string> overload_divisions();

/// Measures every contender. Errors (failed): no memory, or a thread could not be started.
Result<OverloadReport> run_overload(const OverloadOptions& options, const Progress& progress);

}  // namespace millrace::bench
