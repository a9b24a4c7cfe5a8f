// A counter that one worker writes and anyone reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace {

class Counter {
 public:
  /// Its worker only: a plain addition, no locked instruction.
  void add(std::uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  /// Its worker only.
  void raise_to(std::uint64_t n) {
    if (n > value()) value_.store(n, std::memory_order_relaxed);
  }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace millrace
