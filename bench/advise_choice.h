// Which of the combinations that were timed is recommended.
#pragma once

#include <array>

#include "bench/advise.h"

namespace millrace::bench {

/// A combination that takes so much more time than the best of its round is out.
inline constexpr std::array<double, kRounds> kMargin{0.6, 0.3, 0.15};

/// Puts the recommended one of `advice.tried`, which is in order, first, and sets `no_faster` and
/// `shared`.
void recommend(Advice& advice, unsigned workers);

}  // namespace millrace::bench
