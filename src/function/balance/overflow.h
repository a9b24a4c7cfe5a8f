// The overflow of a service: the time of the last packet that it has served without an entry, for
// lack of room, if that was lately.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "millrace/types.h"

namespace millrace {

/// Written by one worker; other threads may read it.
class Overflow {
 public:
  Overflow() = default;
  Overflow(const Overflow& other) : at_(other.load()) {}
  Overflow& operator=(const Overflow& other) {
    at_.store(other.load(), std::memory_order_relaxed);
    return *this;
  }

  /// True if a time has been noted or adopted, and `expire` has not forgotten it since.
  bool is_there() const { return load() != 0; }
  /// Notes that a packet was served without an entry, for lack of room.
  void note(Tick now) { at_.store(kThere | now.ms, std::memory_order_relaxed); }
  /// Adopts the time of another worker's last packet if that is later: some of the other worker's
  /// connections go on at this worker.
  void continue_from(const Overflow& other) {
    const std::uint64_t theirs = other.load();
    const std::uint64_t own = load();
    if (theirs != 0 && (own == 0 || tick(theirs) - tick(own) > 0))
      at_.store(theirs, std::memory_order_relaxed);
  }
  /// True if the last packet was served less than `quiet_ms` ago. Otherwise forgets the time.
  bool expire(Tick now, std::uint32_t quiet_ms) {
    const std::uint64_t own = load();
    // The time of another worker's packet may be later than `now`.
    const auto age_ms = static_cast<std::uint32_t>(std::max(now - tick(own), 0));
    const bool is_recent = own != 0 && age_ms < quiet_ms;
    if (own != 0 && !is_recent) at_.store(0, std::memory_order_relaxed);
    return is_recent;
  }

 private:
  static constexpr std::uint64_t kThere = std::uint64_t{1} << 32;
  static Tick tick(std::uint64_t at) { return Tick{static_cast<std::uint32_t>(at)}; }
  std::uint64_t load() const { return at_.load(std::memory_order_relaxed); }

  std::atomic<std::uint64_t> at_{0};
};

}  // namespace millrace
