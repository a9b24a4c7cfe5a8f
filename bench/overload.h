// The question: with more connections offered than the table takes, what becomes of those that are
// established, and of those that begin, by each policy?
//
// Four fifths of the capacity are established, or less where less is offered in all. While their
// packets go on in both directions, others are begun, evenly in between: nine in ten are SYNs from
// somebody else's address, one in ten a client that completes its handshake and asks. A port makes
// all packets and judges what comes out; its own time is not counted. What overload costs is shown
// by the same packets through a table with room for all of them, in the same repetition.
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

struct OverloadOptions : Settings {
  std::vector<std::string> policies;  ///< empty: all
  std::vector<unsigned> offered_percent{50, 80, 100, 150, 200};
  std::string table = "race";
  std::string ageing = "wheel";
  std::uint64_t capacity = 200'000;  ///< 100 to 10,000,000
  unsigned half_open_percent = 25;
  unsigned burst = 32;

  static constexpr std::uint64_t kMaxCapacity = 10'000'000;
  static constexpr unsigned kMaxPercent = 1000;
};

struct PolicyResult {
  std::string policy;
  unsigned offered_percent = 0;  ///< connections, established ones included, of the capacity
  std::uint64_t established = 0;
  std::uint64_t packets = 0;  ///< of everybody, in the measured part
  /// Share of their packets that came out, to their backend or from their virtual address.
  double established_goodput = 0;
  std::uint64_t misdirected = 0;  ///< packets of anybody that came out to or from somebody else
  std::uint64_t begun = 0;        ///< by clients; as many SYNs as that nine times are nobody's
  double new_served = 0;          ///< share of them whose every packet came out, to one backend
  Spread ns_per_packet;           ///< of all packets
  Spread relative_rate;           ///< packets a second, of those with room for all
  std::uint64_t live = 0;         ///< at the end
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;        ///< packets, for want of a place
  std::uint64_t refused_early = 0;  ///< of them, below the capacity
  std::uint64_t over_budget = 0;
};

struct OverloadReport {
  std::vector<PolicyResult> results;
  bool complete = false;  ///< false: `progress` ended it
};

/// The policies, by the names of `when_full`.
std::vector<std::string> overload_policies();

/// Errors: no memory (failed).
Result<OverloadReport> run_overload(const OverloadOptions& options, const Progress& progress);

}  // namespace millrace::bench
