// Workers that serve a capture again and again, while a test does something with them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "port/replay_port.h"
#include "shard/split.h"
#include "traffic/generate.h"
#include "worker/workers.h"

namespace millrace {

/// Returns MILLRACE_TEST_SEED, or a random number if it is not set.
inline unsigned drawn_seed() {
  const char* const text = std::getenv("MILLRACE_TEST_SEED");
  return text != nullptr ? static_cast<unsigned>(std::stoul(text)) : std::random_device{}();
}

/// Number of entries of the indirection table by which `serve` divides packets among workers.
inline constexpr unsigned kServingEntries = 512;
/// Returns the secret of the hash by which `serve` finds the entry of a packet.
inline Secret serving_secret() { return Secret::from_seed(2); }

/// Waits until `is_so()` is true, for a minute at most. Returns false if it is still not true.
template <class IsSo>
bool comes_true(IsSo&& is_so) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Times that a worker serves its part of the capture: more than any test waits for.
inline constexpr std::uint32_t kServingLoops = 1'000'000;

/// Makes the workers serve the capture of `plan` on threads of their own, and calls `during` once
/// all serve; the workers end after that. The first worker ends earlier if `loops_of_first` is
/// smaller than `kServingLoops`.
template <class While>
void serve(Workers& workers, const TrafficPlan& plan, While&& during,
           std::uint32_t loops_of_first = kServingLoops) {
  const auto capture = generate(plan);
  ASSERT_TRUE(capture.has_value());
  const Indirection indirection(kServingEntries, workers.count());
  const auto entries = shards_of(*capture, *spread_named("keyed")->create(serving_secret()),
                                 indirection, workers.steering());
  ASSERT_TRUE(entries.has_value());
  auto parts = split(*entries, indirection, workers.count());
  std::atomic<bool> stop = false;
  std::vector<ReplayPort> ports;
  std::vector<Port*> pointers;
  for (auto& part : parts) {
    const std::uint32_t loops = ports.empty() ? loops_of_first : kServingLoops;
    ports.push_back(*ReplayPort::create(
        *capture, {.loops = loops, .clock = Clock::wall, .stop = &stop}, nullptr, part));
  }
  for (auto& port : ports) pointers.push_back(&port);
  std::optional<Result<void>> ran;
  std::jthread runs([&] { ran = workers.run(pointers); });
  const bool serve = workers.wait_until_they_serve(std::chrono::minutes(1));
  if (serve) during();
  stop = true;
  runs.join();
  EXPECT_TRUE(serve);
  EXPECT_TRUE(ran.has_value() && ran->has_value());
  for (unsigned n = 0; n < workers.count(); ++n) {
    const auto whole = workers.line(n).check_invariants();
    EXPECT_TRUE(whole.has_value()) << whole.error().message;
  }
  EXPECT_TRUE(workers.function().check_invariants().has_value());
}

}  // namespace millrace
