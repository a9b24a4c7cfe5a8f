// Beginning to fetch a cache line.
#pragma once

namespace millrace::detail {

enum class Intent : unsigned char { read, write };

template <Intent kIntent>
[[gnu::always_inline]] inline void prefetch(const void* line) {
  __builtin_prefetch(line, kIntent == Intent::write);
  // GCC takes a function that only prefetches for one without effect, and drops calls to it.
  asm volatile("");
}

}  // namespace millrace::detail
