// Reason to skip tests under a sanitizer, which makes them several times slower.
#pragma once

#include "core/sanitizers.h"

namespace millrace::test {

/// Reason to skip a test if `kSanitized`: `GTEST_SKIP() << kStatistics`.
inline constexpr const char* kStatistics =
    "repeats one operation thousands of times for statistics: a sanitizer finds nothing new there";

}  // namespace millrace::test
