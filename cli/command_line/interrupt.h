// Ctrl-C and similar signals end a run in order. A run that has not begun to write files ends at
// once (`exit_on_interrupt`); later a run finishes the current burst, and writes the results so
// far.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace millrace::cli {

/// Set by SIGINT, SIGTERM and SIGHUP after `catch_interrupts` was called. The same signal again,
/// half a second after the first or later, ends the process at once.
inline std::atomic<bool> interrupted{false};

/// Installs `handler` for SIGINT, SIGTERM and SIGHUP. A signal that the process was started to
/// ignore (nohup, a background job) stays ignored.
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

/// Handles a signal: sets `interrupted`, or ends the process if the same signal came 500 ms before
/// or earlier. Signals within 500 ms count once, since `timeout` sends its signal twice: to the
/// process, and to its group. Calls only functions that are async-signal-safe.
inline void interrupt(int signal) {
  constexpr std::int64_t kSameMs = 500;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  static std::array<std::atomic<std::int64_t>, SIGTERM + 1> first_ms{};  // 0: no such signal came
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
  ::raise(signal);  // delivered once this handler has returned
}

/// Makes interrupts set `interrupted` from now on.
inline void catch_interrupts() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  on_interrupt(interrupt);
  // At the limit of a file's size, `write` shall fail as on a full disk, and not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
}

/// Makes interrupts end the process at once from now on, with exit status 130: for long work that
/// leaves no files behind. Ends the process if it was interrupted before.
inline void exit_on_interrupt() {
  constexpr int kStatus = 130;
  on_interrupt([](int) { ::_exit(kStatus); });
  if (interrupted.load()) ::_exit(kStatus);
}

}  // namespace millrace::cli
