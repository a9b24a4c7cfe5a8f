// Sanitizers that this build has: GCC defines macros for them, clang has __has_feature.
#pragma once

namespace millrace {

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

}  // namespace millrace
