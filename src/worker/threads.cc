#include "worker/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/processors.h"

namespace millrace {
namespace {

/// Binds the calling thread to a processor. An error is ignored: the thread works unbound, too.
void keep_to(unsigned processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

Result<void> on_threads(unsigned count, const std::function<void(unsigned)>& work) {
  enum class Start : std::uint8_t { wait, go, do_not };
  std::atomic<Start> start = Start::wait;
  std::atomic<bool> no_memory = false;
  const auto work_on = [&](unsigned n) {
    try {
      work(n);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  };
  if (count == 1) {
    work_on(0);
  } else {
    const auto numbers = allowed_processors();
    std::vector<std::jthread> threads;
    threads.reserve(count);
    const auto end_waiting = [&start](Start how) {
      start = how;
      start.notify_all();
    };
    try {
      for (unsigned n = 0; n < count; ++n) {
        threads.emplace_back([&, n] {
          start.wait(Start::wait);
          if (start != Start::go) return;
          if (!numbers.empty()) keep_to(numbers[n % numbers.size()]);
          work_on(n);
        });
      }
    } catch (const std::exception& error) {  // std::system_error, or std::bad_alloc for a thread
      end_waiting(Start::do_not);
      return std::unexpected(Error{"cannot start worker " + std::to_string(threads.size() + 1) +
                                   " of " + std::to_string(count) + ": " + error.what()});
    }
    end_waiting(Start::go);
  }
  if (no_memory) return std::unexpected(Error{"no memory left: lower the capacity or free memory"});
  return {};
}

}  // namespace millrace
