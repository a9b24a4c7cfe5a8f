#include "core/fair_mutex.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {
namespace {

// A thread that unlocks the mutex and locks it again at once gets the mutex after the threads that
// were waiting for it.
TEST(FairMutexTest, IsGotInTurn) {
  constexpr std::chrono::milliseconds kUntilItWaits{50};
  FairMutex mutex;
  std::vector<std::size_t> order;
  std::array<std::atomic<bool>, 3> asks{};
  std::vector<std::jthread> others;
  std::unique_lock guard(mutex);
  for (std::size_t n = 0; n < asks.size(); ++n) {
    others.emplace_back([&mutex, &order, &asks = asks[n], n] {
      asks = true;
      asks.notify_one();
      const std::lock_guard waits(mutex);
      order.push_back(n);
    });
    asks[n].wait(false);
    std::this_thread::sleep_for(kUntilItWaits);
  }
  guard.unlock();
  guard.lock();
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace millrace
