// How long ago a tick was, also if that is longer than signed differences of ticks can say.
#pragma once

#include <cstdint>

#include "millrace/types.h"

namespace millrace {

/// Bound in ms for the difference between the ticks of two workers at one time.
inline constexpr std::uint32_t kTickSkewMs = 1000;

/// Returns the milliseconds from `since` to `now`; 0 if `since` is later, by `kTickSkewMs` at most.
/// Begins again from 0 after 49.7 days.
constexpr std::uint32_t elapsed_ms(Tick since, Tick now) {
  const std::uint32_t ms = now.ms - since.ms;
  return ms > UINT32_MAX - kTickSkewMs ? 0 : ms;
}

}  // namespace millrace
