#include "reload_signal.h"

#include <pthread.h>

#include <csignal>
#include <ctime>
#include <utility>

namespace millrace::cli {
namespace {

sigset_t only_hangup() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void ReloadSignal::block() {
  const sigset_t set = only_hangup();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

ReloadSignal::ReloadSignal(std::function<void()> reload, std::function<void()> look)
    : thread_([reload = std::move(reload), look = std::move(look)](const std::stop_token& end) {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        const sigset_t set = only_hangup();
        for (;;) {
          const timespec second{.tv_sec = 1, .tv_nsec = 0};
          const bool is_signal = ::sigtimedwait(&set, nullptr, &second) == SIGHUP;
          if (end.stop_requested()) return;
          is_signal ? reload() : look();
        }
      }) {}

/// Wakes the thread by a signal, so that it ends at once unless a reload is under way: if a new
/// process waits for the end of this one to open its devices, no packet is forwarded meanwhile.
ReloadSignal::~ReloadSignal() {
  thread_.request_stop();
  ::pthread_kill(thread_.native_handle(), SIGHUP);
}

}  // namespace millrace::cli
