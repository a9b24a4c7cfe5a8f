// What every benchmark is told beside its own question, and how its contenders take turns.
#pragma once

#include <fmt/format.h>

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

/// Calls `measure(contender)` for each, one after the other, as often as there are repetitions;
/// `title(contender)` is what `progress` shows. False where that ended it, and the error of the
/// first that failed.
template <class Contender, class Title, class Measure>
Result<bool> in_turn(const Settings& settings, const std::vector<Contender>& contenders,
                     const Progress& progress, Title&& title, Measure&& measure) {
  for (unsigned repetition = 0; repetition < settings.repetitions; ++repetition) {
    for (const Contender& contender : contenders) {
      if (!progress(fmt::format("repetition {} of {}: {}", repetition + 1, settings.repetitions,
                                title(contender))))
        return false;
      if (Result<void> ok = measure(contender); !ok) return std::unexpected(ok.error());
    }
  }
  return true;
}

}  // namespace millrace::bench
