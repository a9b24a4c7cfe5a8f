// Ctrl-C ends a run in order. As long as nothing is on the disk it ends at once; later the burst at
// hand is finished, and what there is is written.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace millrace::cli {

/// Set by SIGINT, SIGTERM and SIGHUP once `catch_interrupts` was called. A second signal of the
/// kind ends at once.
inline std::atomic<bool> interrupted{false};

/// What was ignored from outside (nohup, a background job) stays ignored.
inline void on_interrupt(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

/// From here on an interrupt sets `interrupted`.
inline void catch_interrupts() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  on_interrupt([](int) { interrupted.store(true); });
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
