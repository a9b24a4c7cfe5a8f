// A token bucket, by the generic cell rate algorithm (ITU-T I.371, annex A). It is one time: when
// it will be full again. A new bucket is full.
//
// Any number of threads may use a bucket at once, without locks. If their ticks differ by some
// milliseconds (`kTickSkewMs` at most), it may let as much more pass as comes in that time. It is
// as exact as ticks are: a burst that comes back within one tick is all that passes in a tick.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/elapsed.h"
#include "millrace/types.h"

namespace millrace {

class TokenBucket {
 public:
  /// Most nanoseconds in which a burst may come back: a week.
  static constexpr std::uint64_t kLongest = std::uint64_t{7} * 86'400 * 1'000'000'000;

  /// True if one more may pass: `burst` at once (1 or more), then one each `interval_ns`
  /// nanoseconds; their product is at most `kLongest`. With `takes`, that one counts.
  bool allows(std::uint64_t interval_ns, std::uint32_t burst, Tick now, bool takes) {
    const std::uint64_t all = interval_ns * burst;
    std::uint64_t was = full_at_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t next = left(was, now, all) + interval_ns;
      if (next > all) return false;
      if (!takes) return true;
      if (full_at_.compare_exchange_weak(was, time(now, next), std::memory_order_relaxed))
        return true;
    }
  }
  /// Undoes an `allows` with `takes` that returned true at about the same time.
  void give_back(std::uint64_t interval_ns, Tick now) {
    std::uint64_t was = full_at_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t rest = left(was, now, kLongest);
      const std::uint64_t is = rest > interval_ns ? time(now, rest - interval_ns) : 0;
      if (full_at_.compare_exchange_weak(was, is, std::memory_order_relaxed)) return;
    }
  }
  /// Returns for how many nanoseconds from `now` on the bucket is not full.
  std::uint64_t left_ns(Tick now) const {
    return left(full_at_.load(std::memory_order_relaxed), now, kLongest);
  }
  /// Makes the bucket full.
  void fill() { full_at_.store(0, std::memory_order_relaxed); }

 private:
  // Ticks begin anew after 49 days. A time is nanoseconds of a tick's 32 bits of milliseconds, so
  // that differences are right across the end of the ticks.
  static constexpr std::uint64_t kTickNs = 1'000'000;
  static constexpr std::uint64_t kRound = (std::uint64_t{1} << 32) * kTickNs;

  static std::uint64_t time(Tick now, std::uint64_t later) {
    return std::max<std::uint64_t>((now.ms * kTickNs + later) % kRound, 1);
  }
  /// Returns the nanoseconds up to a time. More than `most`, and the skew of ticks, means that the
  /// time has passed: the bucket has been full since.
  static std::uint64_t left(std::uint64_t full_at, Tick tick, std::uint64_t most) {
    if (full_at == 0) return 0;
    const std::uint64_t now = tick.ms * kTickNs;
    const std::uint64_t left = full_at >= now ? full_at - now : full_at + kRound - now;
    return left > most + kTickSkewMs * kTickNs ? 0 : left;
  }

  std::atomic<std::uint64_t> full_at_ = 0;  // 0: full
};

}  // namespace millrace
