// A count that one thread writes and any thread reads. Other than measure's Counter it can go down,
// and be moved along with the backend that it counts for.
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace {

class Tally {
 public:
  Tally() = default;
  Tally(const Tally& other) : value_(other.read()) {}
  Tally& operator=(const Tally& other) {
    value_.store(other.read(), std::memory_order_relaxed);
    return *this;
  }

  std::uint64_t read() const { return value_.load(std::memory_order_relaxed); }
  /// By the writing thread only: no locked instruction is needed.
  void add(std::uint64_t n) { value_.store(read() + n, std::memory_order_relaxed); }
  void subtract(std::uint64_t n) { value_.store(read() - n, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace millrace
