// Ctrl-C ends a run in order. As long as nothing is on the disk it ends at once; later the burst at
// hand is finished, and what there is is written.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace millrace::cli {

/// Set by SIGINT, SIGTERM and SIGHUP once `catch_interrupts` was called. A second signal of the
/// kind, half a second after the first or later, ends at once.
inline std::atomic<bool> interrupted{false};

/// What was ignored from outside (nohup, a background job) stays ignored.
inline void on_interrupt(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

/// One that wants the end may send the same signal twice at once, as `timeout` does: to the
/// process, and to its group. Calls only what a signal's handler may.
inline void interrupt(int signal) {
  constexpr std::int64_t kSameMs = 500;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  static std::array<std::atomic<std::int64_t>, SIGTERM + 1> first_ms{};  // 0: none came
  static_assert(SIGINT <= SIGTERM && SIGHUP <= SIGTERM);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
  std::int64_t none = 0;
  interrupted.store(true);
  auto& first = first_ms.at(static_cast<std::size_t>(signal));
  if (first.compare_exchange_strong(none, now_ms) || now_ms - first.load() < kSameMs) return;
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  ::raise(signal);  // it comes when this handler has returned
}

/// From here on an interrupt sets `interrupted`.
inline void catch_interrupts() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  on_interrupt(interrupt);
  // A limit on a file's size is an error of writing like a full disk, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
}

/// From here on an interrupt ends the program at once, status 130: for long work that leaves
/// nothing behind.
inline void exit_on_interrupt() {
  constexpr int kStatus = 130;
  on_interrupt([](int) { ::_exit(kStatus); });
  if (interrupted.load()) ::_exit(kStatus);
}

}  // namespace millrace::cli
