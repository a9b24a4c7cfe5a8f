// Limits of tests under a sanitizer, which makes them several times slower.
#pragma once

#include "core/sanitizers.h"

namespace millrace::test {

/// Reason to skip a test: `if (kSanitized) GTEST_SKIP() << kStatistics;`.
inline constexpr const char* kStatistics =
    "does the same thing many thousand times, to count it: a sanitizer sees nothing new in that";

}  // namespace millrace::test
