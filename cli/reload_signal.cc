#include "reload_signal.h"

#include <pthread.h>

#include <cerrno>
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

ReloadSignal::ReloadSignal(std::function<void()> reload)
    : thread_([reload = std::move(reload)](const std::stop_token& end) {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        const sigset_t set = only_hangup();
        while (!end.stop_requested()) {
          constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 100'000'000};
          if (::sigtimedwait(&set, nullptr, &kWait) == SIGHUP) reload();
        }
      }) {}

ReloadSignal::~ReloadSignal() = default;

}  // namespace millrace::cli
