// The question: what does a packet cost from receive to send, and which stages take the time?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "function/settings.h"
#include "millrace/memory.h"
#include "millrace/types.h"
#include "traffic/generate.h"

namespace millrace::bench {

struct PathOptions : Settings {
  std::vector<std::uint64_t> live{786'432, 3'145'728};
  std::vector<Profile> traffic{Profile::uniform, Profile::campus};
  std::string table = "race";
  unsigned burst = 32;  ///< packets a burst
  /// The function of the whole way; it must track every packet. Null: the load balancer with
  /// default services.
  std::shared_ptr<const FunctionSettings> function;
};

/// Results of one kind of traffic with one number of live connections. Spreads are in ns a packet.
struct PathResult {
  Profile traffic = Profile::uniform;
  std::uint64_t live = 0;     ///< connections in the tables during the measurement
  std::uint64_t packets = 0;  ///< packets in each timed pass
  Pages pages = Pages::huge;  ///< kind of pages that the line's IPv4 table got
  Spread parse;               ///< receive and parse alone
  Spread touch;               ///< receive, parse, and find and update each record in `race`
  Spread stateless;           ///< the load balancer's line without entries, by Maglev alone
  Spread whole;               ///< the line of the measured function
  /// Stages of the line, with the cost of reading the clock; none for tables other than `race` and
  /// `chained`.
  std::vector<std::pair<std::string_view, Spread>> stages;
};

/// Measures every kind of traffic and number of connections, contenders in turn. Returns what is
/// finished when `progress` ends the measurement. Errors (failed): no memory, or a contender with
/// results other than the reference's.
Result<std::vector<PathResult>> run_path(const PathOptions& options, const Progress& progress);

}  // namespace millrace::bench
