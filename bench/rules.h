// The question: what does it cost to find a connection's rule among many, and to prepare the rules?
//
// The rules and packets are those of rule_mix.h; half of the rules also name the zones from which
// and to which a packet goes. What the classifier finds is compared with a linear search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/progress.h"
#include "bench/rule_mix.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/types.h"

namespace millrace::bench {

struct RulesOptions : Settings {
  std::vector<RuleMix> mixes{RuleMix::acl, RuleMix::firewall, RuleMix::ipc};
  std::vector<std::uint64_t> rules{1000, 10'000, 50'000};
  std::uint64_t packets = 1'000'000;  ///< packets of each kind
  std::uint64_t compared = 10'000;    ///< packets of each kind that are compared
};

/// Results of one mix with one number of rules, for one address family.
struct RulesResult {
  RuleMix mix = RuleMix::acl;
  unsigned family = 4;  ///< 4 or 6
  std::size_t rules = 0;
  std::size_t memory_bytes = 0;
  Spread build_ms;
  Spread random_ns;   ///< a packet with random addresses and ports
  Spread derived_ns;  ///< a packet that was drawn from a rule
};

/// Measures every mix, number of rules and family in turn. Returns what is finished when `progress`
/// ends the measurement. Errors (failed): the classifier finds another rule than a linear search.
Result<std::vector<RulesResult>> run_rules(const RulesOptions& options, const Progress& progress);

}  // namespace millrace::bench
