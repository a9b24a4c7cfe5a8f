// The question: with more connections offered than the tables take, what becomes of those that are
// established, and of those that begin, by each policy and table, on one worker and on more?
//
// Four fifths of the capacity are established, or less where less is offered in all. While their
// packets go on in both directions, others are begun, evenly in between: nine in ten are SYNs from
// somebody else's address, one in ten a client that completes its handshake and asks. Ports make
// all packets and judge what comes out (overload_port.h); their own time is not counted. What
// overload costs is shown by the same connections through tables with room for all of them, in the
// same repetition.
//
// Several workers have a table each, and the clients that the default spread gives them: not
// equally many. Where tables are exactly equal parts of the capacity, some are full before all are,
// as in KTH 2021, Figure 5.6.
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
  unsigned half_open_percent = 25;
  unsigned burst = 32;

  static constexpr std::uint64_t kMaxCapacity = 10'000'000;
  static constexpr unsigned kMaxPercent = 1000;
};

struct PolicyResult {
  std::string policy;
  std::string table;
  unsigned workers = 0;
  std::string division;
  unsigned offered_percent = 0;  ///< connections, established ones included, of the capacity
  std::uint64_t established = 0;
  std::uint64_t packets = 0;  ///< of everybody, in the measured part
  /// Share of their packets that came out, to their backend or from their virtual address.
  double established_goodput = 0;
  std::uint64_t misdirected = 0;  ///< packets of anybody that came out to or from somebody else
  std::uint64_t begun = 0;        ///< by clients; as many SYNs as that nine times are nobody's
  double new_served = 0;          ///< share of them whose every packet came out, to one backend
  double new_refused = 0;         ///< share of all that began, nobody's too, that got no entry ever
  /// Share of the packets that came out right, of those which all that are genuine have to send.
  double goodput = 0;
  /// Connections that had entries when the first found no place, of the capacity, where all workers
  /// get on equally fast; none: everybody found one.
  std::optional<double> first_refused_load;
  Spread mpps;             ///< of all workers together
  Spread ns_per_packet;    ///< of all packets, of one core
  Spread relative_rate;    ///< packets a second, of those of the same connections with room for all
  std::uint64_t live = 0;  ///< at the end
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;        ///< packets, for want of a place
  std::uint64_t refused_early = 0;  ///< of them, below the capacity of that worker's table
  std::uint64_t over_budget = 0;
};

struct OverloadReport {
  std::vector<PolicyResult> results;
  bool complete = false;  ///< false: `progress` ended it
};

/// The policies, by the names of `when_full`.
std::vector<std::string> overload_policies();
/// How several workers divide the capacity: `room`, as `Workers` does, so that together they keep
/// the promise although their shares are unequal, or `even`, exactly equal parts.
std::vector<std::string> overload_divisions();

/// Errors: no memory (failed).
Result<OverloadReport> run_overload(const OverloadOptions& options, const Progress& progress);

}  // namespace millrace::bench
