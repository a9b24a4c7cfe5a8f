// A counter that one thread writes and any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace {

class Counter {
 public:
  Counter() = default;
  Counter(const Counter& other) : value_(other.value()) {}
  Counter& operator=(const Counter& other) {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }

  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

  // By the writing thread only: plain arithmetic, no locked instruction.
  void add(std::uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  void subtract(std::uint64_t n) { value_.store(value() - n, std::memory_order_relaxed); }
  void raise_to(std::uint64_t n) {
    if (n > value()) value_.store(n, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace millrace
