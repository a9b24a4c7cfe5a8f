// The question: what does a chain of functions cost if packets are looked up once for all of them,
// and if each function looks them up by itself?
//
// Follows MiddleClick's measurements (Barbette and others, "Combined stateful classification and
// session splicing for high-speed NFV service chaining", IEEE/ACM ToN 2021), but from memory on one
// core: a batch of packets (conversations.h) is made, then timed through the functions. `each` is a
// line for each function, one behind the other; what leaves one line enters the next, without a
// ring or a copy in between. Replies pass in the reverse order. The packets of both directions of a
// batch pass one after another, in every contender.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/conversations.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/types.h"

namespace millrace::bench {

using Functions = std::vector<std::string>;  ///< names, in a chain's order

struct ChainOptions : Settings {
  std::vector<Talk> traffic{Talk::http, Talk::campus};
  std::vector<Functions> chains;         ///< more than one function each; empty: `known_chains`
  std::uint64_t packets = 1'000'000;     ///< that are timed
  std::uint32_t conversations = 50'000;  ///< at once
  unsigned burst = 32;
};

/// Returns the chains that are measured by default.
std::vector<Functions> known_chains();
/// Returns the names of the functions that chains may have.
Functions chainable();

struct ChainResult {
  Talk traffic = Talk::http;
  Functions functions;
  bool is_once = true;      ///< one look-up for all functions
  Spread ns;                ///< a packet
  std::uint64_t begun = 0;  ///< conversations
  /// `ns` of a chain that looks up once, divided by that of its most expensive function alone, and
  /// by that of its functions one behind the other, in the same repetition.
  std::optional<Spread> of_dearest;
  std::optional<Spread> of_each;
};

struct ChainReport {
  std::vector<ChainResult> results;
  std::vector<std::string> left_out;  ///< chains that cannot be configured, with the reason
  bool complete = false;
};

/// Measures each chain both ways, and each of its functions alone. Errors: a chain of `options`
/// cannot be configured (usage); no memory, or a packet did not leave as it must (failed).
Result<ChainReport> run_chain(const ChainOptions& options, const Progress& progress);

}  // namespace millrace::bench
