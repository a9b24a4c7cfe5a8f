// Times single operations.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace millrace::bench {

/// Measures by the time-stamp counter on x86-64, by the steady clock elsewhere. A read of the
/// counter waits for earlier instructions (rdtscp) and holds back later ones (lfence). Creating a
/// clock takes 20 ms.
class CycleClock {
 public:
  CycleClock() {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t ticks = read();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) {
    }
    const auto took = std::chrono::steady_clock::now() - start;
    ns_per_tick_ = std::chrono::duration<double, std::nano>(took).count() /
                   static_cast<double>(read() - ticks);
    overhead_ = UINT64_MAX;
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t from = begin();
      const std::uint64_t empty = read() - from;
      if (empty < overhead_) overhead_ = empty;
    }
  }

  /// Returns the time in the counter's ticks.
  std::uint64_t begin() const { return read(); }
  /// Returns nanoseconds since `start`, a value of `begin()`, less the cost of reading the clock.
  double ns_since(std::uint64_t start) const {
    const std::uint64_t took = read() - start;
    return took > overhead_ ? static_cast<double>(took - overhead_) * ns_per_tick_ : 0;
  }

 private:
  static std::uint64_t read() {
#if defined(__x86_64__)
    unsigned core;
    const std::uint64_t now = __rdtscp(&core);
    _mm_lfence();
    return now;
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  double ns_per_tick_ = 1;
  std::uint64_t overhead_ = 0;
};

}  // namespace millrace::bench
