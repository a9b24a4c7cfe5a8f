// A value that threads write under a lock, and that any thread may read without it, as a hint.
#pragma once

#include <atomic>

namespace millrace {

/// Accesses compile to plain loads and stores: they order nothing.
template <class T>
class Relaxed {
 public:
  Relaxed(T value = {}) : value_(value) {}  // NOLINT: it stands for a T

  operator T() const { return value_.load(std::memory_order_relaxed); }  // NOLINT: as above
  T operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return value;
  }
  T operator=(const Relaxed& other) { return *this = static_cast<T>(other); }

 private:
  std::atomic<T> value_;
};

}  // namespace millrace
