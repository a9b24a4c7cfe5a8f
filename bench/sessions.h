// The question: how many lookups a second does one core do, or do several cores among which the
// sessions are divided, if the packets of each session are as far apart as possible?
//
// This repeats the DHash paper's measurement (docs/dhash.md): between two packets of one session
// comes one packet of every other session of the same core. Each core has its own table, made and
// filled on its own thread. `Contender::touch` is timed for about `budget_ms`: as many whole rounds
// of a core's sessions as fit, or, if not even one round fits, as many packets as fit, but at least
// 1000. Tables are made anew for each trial, except tables with long chains.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "conntrack/table/dhash_statistics.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

/// Longest average chain of `chained/N`, in records. It is limited because filling takes time in
/// proportion to the length of the chains and to the number of sessions.
inline constexpr std::size_t kLongestChain = 2000;

struct SessionsOptions : Settings {
  std::vector<std::string> tables;   ///< empty: the paper's tables, `chained` and `race`
  std::vector<std::size_t> buckets;  ///< each N adds a contender `chained/N`, with N buckets in all
  /// Numbers of sessions, 1000 to 10 million each; by default the numbers of the paper's Table II.
  std::vector<std::size_t> sessions{262'144, 524'288, 1'048'576};
  std::vector<unsigned> cores{1, 2};           ///< numbers of cores, up to 1000 each
  unsigned burst = 32;                         ///< packets a burst
  double budget_ms = 200;                      ///< time of the lookups in a trial
  std::size_t signature_sessions = 1'000'000;  ///< sessions of `SignatureResult`, ten a bucket
};

/// Results of one contender, number of sessions and number of cores.
struct SessionsResult {
  std::string table;
  std::optional<std::size_t> buckets;  ///< N of `chained/N`, for all cores together
  std::size_t sessions = 0;
  unsigned cores = 0;
  std::size_t live = 0;  ///< sessions in the tables
  Spread mpps;           ///< all cores together
  Spread ns_per_lookup;  ///< on one core
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Pages pages = Pages::huge;
};

/// Effect of a signature, with or without major location, for sessions like one site's: Tables IV
/// and V of the paper.
struct SignatureResult {
  std::string_view table;  ///< name of the table that has this signature, and major location
  bool major_location = false;
  DHashStatistics statistics;
};

struct SessionsReport {
  std::vector<SessionsResult> results;
  std::vector<SignatureResult> signatures;
  bool complete = false;  ///< false: `progress` ended the measurement
};

/// Measures every contender, in turn. Errors: usage if chains are too long; failed if memory is
/// short, a thread could not be started, or a contender gives wrong results.
Result<SessionsReport> run_sessions(const SessionsOptions& options, const Progress& progress);

}  // namespace millrace::bench
