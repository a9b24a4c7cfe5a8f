// A counter that any thread reads, and that one thread writes, or several do.
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

  /// Of one that counts down, too, and may be negative for a moment where several threads write.
  std::int64_t difference() const { return static_cast<std::int64_t>(value()); }

  /// By any thread, of one that several write.
  void add_beside_others(std::uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }

  // By the only thread that writes: plain arithmetic, no locked instruction.
  void add(std::uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  void subtract(std::uint64_t n) { value_.store(value() - n, std::memory_order_relaxed); }
  void raise_to(std::uint64_t n) {
    if (n > value()) value_.store(n, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace millrace
