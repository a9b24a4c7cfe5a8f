// What a thread does while it waits for another for a moment, and how long it did.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace millrace::detail {

/// The thread waits while this lives.
class Waiting {
 public:
  Waiting() : start_(Clock::now()) { ++mine().depth; }
  ~Waiting() {
    if (--mine().depth > 0) return;  // the outermost one counts
    const std::chrono::nanoseconds waited = Clock::now() - start_;
    mine().ns += static_cast<std::uint64_t>(waited.count());
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// What the calling thread has waited since it was started, in ns.
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

/// Between two looks at what another thread is to change. Who waits long gives its processor away:
/// the one it waits for may be without.
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
  /// Pauses of some 10 to 50 us on x86, longer than what is waited for takes on a processor.
  static constexpr unsigned kBeforeYielding = 1024;

  std::optional<Waiting> waiting_;
  unsigned looks_ = 0;
};

}  // namespace millrace::detail
