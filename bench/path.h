// The question: what does a packet's whole way cost, and where does the time go?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"
#include "traffic/generate.h"

namespace millrace::bench {

struct PathOptions : Settings {
  std::vector<std::uint64_t> live{786'432, 3'145'728};
  std::vector<Profile> traffic{Profile::uniform, Profile::campus};
  std::string table = "race";
  unsigned burst = 32;
};

/// One kind of traffic with so many live connections; nanoseconds a packet.
struct PathResult {
  Profile traffic = Profile::uniform;
  std::uint64_t live = 0;     ///< connections in the tables while it was measured
  std::uint64_t packets = 0;  ///< in each timed pass
  Pages pages = Pages::huge;  ///< of the tables, as obtained
  Spread parse;               ///< receive and parse alone
  Spread touch;               ///< receive, parse, and find and update each record in `race`
  Spread stateless;           ///< the load balancer's line without entries: all by Maglev
  Spread whole;               ///< the load balancer's line
  /// Of the line, clock reads included; none but for `race` and `chained`.
  std::vector<std::pair<std::string_view, Spread>> stages;
};

/// Measures all of it, contenders in turn; what is finished where `progress` ends it. Errors: no
/// memory, or a contender that does not give the reference's answer.
Result<std::vector<PathResult>> run_path(const PathOptions& options, const Progress& progress);

}  // namespace millrace::bench
