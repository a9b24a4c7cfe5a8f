// The question: what does it cost that another server has all sessions, too ([pair])?
//
// NAT on one core, from memory, alone and with a copy (worker/workers_copies.h). The other server
// has a line of its own, and a turn every 5 ms on the same core, which is not counted: on
// another processor it would slow this one wherever the two are threads of one core. What the two
// tell each other is sealed and opened as on a network, and passed in memory.
//
// 1. New sessions: a customer's packet and the reply, which proves the session.
// 2. Established: half of the packets go each way, sessions in random order.
// 3. Initial copying: the other server begins with nothing while established packets flow.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/types.h"

namespace millrace::bench {

struct PairOptions : Settings {
  std::uint64_t sessions = 1'000'000;
  std::uint64_t customers = 16'384;  ///< `sessions` if those are fewer
  unsigned burst = 32;
};

struct PairResult {
  bool is_copied = false;
  Spread begun;        ///< million sessions a second
  Spread established;  ///< Mpps
  /// @name Only with a copy
  /// @{
  double bytes_a_session = 0;  ///< in datagrams to the other server, by when all are in sync
  Spread copying_s;            ///< seconds of the initial copying
  Spread while_copying;        ///< Mpps of established packets meanwhile
  double copying_bytes = 0;    ///< bytes of the initial copying, in datagrams
  /// @}
};

struct PairReport {
  std::vector<PairResult> results;  ///< alone, and copied
  Spread of_begun;                  ///< `begun` with a copy, divided by that without, of each turn
  Spread of_established;
  bool complete = false;
};

/// Measures both in turn. Errors (failed): no memory; a packet did not leave as it must; or the
/// other server did not get all sessions.
Result<PairReport> run_pair(const PairOptions& options, const Progress& progress);

}  // namespace millrace::bench
