// What every benchmark is told beside its own question, and how its contenders take turns.
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
  std::uint64_t seed = 1;
  Pages pages = Pages::huge;
};

/// Calls `measure(contender)` for each, one after the other, as often as there are repetitions: a
/// `Result<double>`, the contender's first figure. `title(contender)` is what `progress` shows.
/// False where that ended it, and the error of the first that failed.
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
