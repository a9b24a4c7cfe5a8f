// What the tests of tables, ageing and trackers share: seeds that are printed, and keys.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "millrace/key.h"

namespace millrace::test {

/// Another one on every run; MILLRACE_TEST_SEED repeats one.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("MILLRACE_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  }();
  return value;
}

/// To be streamed into a SCOPED_TRACE at the head of every random test.
inline std::string repeat() { return "repeat with MILLRACE_TEST_SEED=" + std::to_string(seed()); }

/// The n-th of a set of distinct keys.
template <class K>
K nth_key(std::uint64_t n, std::uint8_t protocol = 17) {
  K key;
  std::memcpy(key.source.bytes.data(), &n, 4);
  key.destination.bytes.back() = static_cast<std::uint8_t>(n >> 48);
  key.source_port = static_cast<std::uint16_t>(n >> 32);
  key.destination_port = 443;
  key.protocol = protocol;
  return key;
}

template <class K>
K random_key(std::mt19937_64& random) {
  return nth_key<K>(random());
}

}  // namespace millrace::test
