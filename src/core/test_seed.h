// Seeds of random tests. A failing test prints its seed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace millrace::test {

/// Returns the seed in the environment variable MILLRACE_TEST_SEED; if it is not set, a random
/// number, drawn once a process.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("MILLRACE_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  }();
  return value;
}

/// Returns how to repeat a test. Streamed into a SCOPED_TRACE at the head of every random test.
inline std::string repeat() { return "repeat with MILLRACE_TEST_SEED=" + std::to_string(seed()); }

}  // namespace millrace::test
