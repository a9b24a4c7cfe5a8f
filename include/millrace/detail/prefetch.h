// Beginning to fetch a cache line.
#pragma once

namespace millrace::detail {

/// Into the second level: a core has twice as many fetches under way there as into the first, and
/// the rest of the way costs less than a look-up can hide (docs/race.md, The pipeline).
[[gnu::always_inline]] inline void prefetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
  // GCC takes a function that only prefetches for one without effect, and drops calls to it.
  asm volatile("");
}

}  // namespace millrace::detail
