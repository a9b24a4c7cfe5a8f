// The question: how fast does one core, or several with a share of the sessions each, look sessions
// up, by how many there are, when the packets of each are as far apart as can be?
//
// What the paper on DHash measured (docs/dhash.md): every two packets of one session are separated
// by one of each other session. Each core has its own table, made and filled on its own thread.
// What is timed is `Contender::touch`, for about `budget_ms`: as many whole rounds of all sessions
// as fit, or, where not even one does, as many packets as fit. Tables are made anew for each trial,
// but for those with long chains.
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

/// Records a chain of `chained/N`, on average, at most: what filling takes grows with it and with
/// the sessions.
inline constexpr std::size_t kLongestChain = 2000;

struct SessionsOptions : Settings {
  std::vector<std::string> tables;   ///< empty: those of the paper, `chained` and `race`
  std::vector<std::size_t> buckets;  ///< beside them `chained` with so many, as `chained/N`
  std::vector<std::size_t> sessions{262'144, 524'288, 1'048'576};  ///< 1000 to 10 million; Table II
  std::vector<unsigned> cores{1, 2};                               ///< up to 1000
  unsigned burst = 32;
  double budget_ms = 200;                      ///< of timed look-ups in a trial
  std::size_t signature_sessions = 1'000'000;  ///< ten a bucket
};

/// One contender with so many sessions on so many cores.
struct SessionsResult {
  std::string table;
  std::optional<std::size_t> buckets;  ///< of `chained/N`, all cores together
  std::size_t sessions = 0;
  unsigned cores = 0;
  std::size_t live = 0;
  Spread mpps;           ///< all cores together
  Spread ns_per_lookup;  ///< of one core
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Pages pages = Pages::huge;
};

/// What a signature and the major location make of sessions like a site's: Tables IV and V.
struct SignatureResult {
  std::string_view table;  ///< by its name with major location
  bool major_location = false;
  DHashStatistics statistics;
};

struct SessionsReport {
  std::vector<SessionsResult> results;
  std::vector<SignatureResult> signatures;
  bool complete = false;  ///< false: `progress` ended it
};

/// Measures all of it, contenders in turn. Errors: chains that are too long (usage), no memory, or
/// a contender that does not find a session.
Result<SessionsReport> run_sessions(const SessionsOptions& options, const Progress& progress);

}  // namespace millrace::bench
