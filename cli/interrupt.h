// Ctrl-C asks for an orderly end: the burst at hand is finished, and what there is is written.
#pragma once

#include <atomic>
#include <csignal>

namespace millrace::cli {

/// Set by SIGINT and SIGTERM once `catch_interrupts` was called. A second signal ends at once.
inline std::atomic<bool> interrupted{false};

inline void catch_interrupts() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A limit on a file's size is an error of writing like a full disk, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace millrace::cli
