// Chooses the combination to recommend from those that were timed.
#pragma once

#include <array>

#include "bench/advise.h"

namespace millrace::bench {

/// Margin of each round: a combination drops out if its median exceeds the round's least median by
/// more than this share of the least median.
inline constexpr std::array<double, kRounds> kMargin{0.6, 0.3, 0.15};

/// Moves the recommended combination to the front of `advice.tried`, which must be sorted by round
/// and time, and sets `no_faster` and `shared`.
void recommend(Advice& advice, unsigned workers);

}  // namespace millrace::bench
