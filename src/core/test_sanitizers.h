// How far tests go under a sanitizer, which makes them several times slower.
#pragma once

namespace millrace::test {

// GCC defines macros; clang answers __has_feature.
#if defined(__has_feature)
inline constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
inline constexpr bool kSanitized = kThreadSanitized || __has_feature(address_sanitizer);
#else
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif
#endif

/// For `if (kSanitized) GTEST_SKIP() << kStatistics;`.
inline constexpr const char* kStatistics =
    "does the same thing many thousand times, to count it: a sanitizer sees nothing new in that";

}  // namespace millrace::test
