// A counter that any thread may read. One thread writes it with plain arithmetic, or several do
// with `add_beside_others`, not both.
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

  /// Returns the value of a counter that also counts down. It may be negative while several threads
  /// write.
  std::int64_t difference() const { return static_cast<std::int64_t>(value()); }

  /// Adds to a counter that several threads write; any thread may call it.
  void add_beside_others(std::uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }

  // The functions below are for a counter that one thread writes: plain arithmetic, no locked
  // instruction.
  void add(std::uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  void subtract(std::uint64_t n) { value_.store(value() - n, std::memory_order_relaxed); }
  void raise_to(std::uint64_t n) {
    if (n > value()) value_.store(n, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace millrace
