// Short waits of one thread for another: their total time, and the back-off between two tries.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace millrace::detail {

/// Counts the time of its life as waiting time of the calling thread. Nested objects count once.
class Waiting {
 public:
  Waiting() : start_(Clock::now()) { ++mine().depth; }
  ~Waiting() {
    if (--mine().depth > 0) return;  // only the outermost object counts
    const std::chrono::nanoseconds waited = Clock::now() - start_;
    mine().ns += static_cast<std::uint64_t>(waited.count());
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Returns the waiting time of the calling thread since the thread's start, in ns.
  static std::uint64_t sum_ns() { return mine().ns; }

 private:
  using Clock = std::chrono::steady_clock;

  struct PerThread {
    std::uint64_t ns = 0;
    unsigned depth = 0;
  };
  static PerThread& mine() {
    thread_local PerThread waiting;
    return waiting;
  }

  Clock::time_point start_;
};

/// Back-off of a thread that polls for another thread's change: call `wait` between two tries. A
/// thread that waits long yields its processor, as the thread that it waits for may need one. The
/// waiting time counts (`Waiting`) from the first `wait` until the object is destroyed.
class Backoff {
 public:
  void wait() {
    if (!waiting_) waiting_.emplace();
    if (++looks_ % kBeforeYielding == 0) std::this_thread::yield();
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }

 private:
  /// Calls of `wait` up to the next yield. On x86 they take some 10 to 50 us, longer than a running
  /// thread holds a lock.
  static constexpr unsigned kBeforeYielding = 1024;

  std::optional<Waiting> waiting_;
  unsigned looks_ = 0;
};

}  // namespace millrace::detail
