// Prefetch of a cache line.
#pragma once

namespace millrace::detail {

/// Prefetches a line into the L2 cache: a core can have twice as many fetches under way into L2 as
/// into L1, and a lookup hides the latency from L2 to L1 (docs/race.md, The pipeline).
[[gnu::always_inline]] inline void prefetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
  // Without this, GCC assumes that a function that only prefetches has no effect, and drops calls
  // to it.
  asm volatile("");
}

}  // namespace millrace::detail
