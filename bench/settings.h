// Settings that all benchmarks have, and the loop in which contenders take turns.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/progress.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct Settings {
  unsigned repetitions = 5;
  std::uint64_t seed = 1;     ///< for keys, traffic and hashes
  Pages pages = Pages::huge;  ///< kind of pages wanted for tables
};

/// Calls `measure(contender)` for every contender in turn, once in each repetition. `measure`
/// returns a `Result<double>`: the contender's first figure. `title(contender)` is what `progress`
/// shows. Returns false if `progress` ended the measurement. Errors: the first one of `measure`.
template <class Contender, class Title, class Measure>
Result<bool> in_turn(const Settings& settings, const std::vector<Contender>& contenders,
                     const Progress& progress, Title&& title, Measure&& measure) {
  std::size_t to_come = settings.repetitions * contenders.size();
  for (unsigned repetition = 0; repetition < settings.repetitions; ++repetition) {
    for (const Contender& contender : contenders) {
      const std::string who = title(contender);
      const std::string what =
          fmt::format("repetition {} of {}: {}", repetition + 1, settings.repetitions, who);
      if (!progress({.what = what, .who = who, .to_come = to_come--})) return false;
      const Result<double> measured = measure(contender);
      if (!measured) return std::unexpected(measured.error());
      progress.seen(who, *measured);
    }
  }
  return true;
}

}  // namespace millrace::bench
