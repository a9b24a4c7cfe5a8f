// That packets of a service were served without an entry, and when the last one was.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "millrace/types.h"

namespace millrace {

/// One worker writes; others may read.
class Overflow {
 public:
  Overflow() = default;
  Overflow(const Overflow& other) : at_(other.load()) {}
  Overflow& operator=(const Overflow& other) {
    at_.store(other.load(), std::memory_order_relaxed);
    return *this;
  }

  /// Returns whether there are such packets: lately, as far as `expire` has been asked.
  bool is_there() const { return load() != 0; }
  void note(Tick now) { at_.store(kThere | now.ms, std::memory_order_relaxed); }
  /// Takes over another worker's, some of whose connections become this one's.
  void follow(const Overflow& other) {
    const std::uint64_t theirs = other.load();
    const std::uint64_t own = load();
    if (theirs != 0 && (own == 0 || tick(theirs) - tick(own) > 0))
      at_.store(theirs, std::memory_order_relaxed);
  }
  /// Returns whether the last one is less than `quiet_ms` ago; else there is none from now on.
  bool expire(Tick now, std::uint32_t quiet_ms) {
    const std::uint64_t own = load();
    // Another worker's tick may be later.
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
