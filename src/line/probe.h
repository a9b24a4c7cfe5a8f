// Measures where a worker's time goes, stage by stage. A line is compiled with `NoProbe`, which
// costs nothing, or with `StageProbe`, for benchmarks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <chrono>
#endif

namespace millrace {

enum class Stage : std::uint8_t {
  receive,
  parse,
  prefetch,
  age,
  find,
  open,
  follow,
  process,
  send
};
inline constexpr std::size_t kStages = 9;
inline constexpr std::array<std::string_view, kStages> kStageNames{
    "receive", "parse", "prefetch", "age", "find", "open", "follow", "process", "send"};

/// A probe that measures nothing.
struct NoProbe {
  void start() {}
  void done(Stage) {}
};

/// Sums the time of each stage. The clock is read at the end of each stage of a burst; `prefetch`
/// has two parts, and the clock is read after each.
class StageProbe {
 public:
  void start() { last_ = now(); }
  /// Adds the time since the last call of `start` or `done` to that stage.
  void done(Stage stage) {
    const std::uint64_t at = now();
    ticks_[static_cast<std::size_t>(stage)] += at - last_;
    last_ = at;
  }
  /// Returns the sums by stage, in units of the processor's time-stamp counter on x86-64, elsewhere
  /// in those of std::chrono::steady_clock.
  const std::array<std::uint64_t, kStages>& ticks() const { return ticks_; }

  static std::uint64_t now() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

 private:
  std::uint64_t last_ = 0;
  std::array<std::uint64_t, kStages> ticks_{};
};

}  // namespace millrace
