#include "millrace/hash.h"

#include <unistd.h>

#include <algorithm>

namespace millrace {

Secret Secret::random() {
  Secret secret;
  // 240 bytes are below getentropy's limit of 256, under which it cannot be interrupted or refused.
  static_assert(sizeof(secret.bytes) <= 256);
  if (::getentropy(secret.bytes.data(), secret.bytes.size()) != 0) __builtin_trap();
  return secret;
}

Secret Secret::from_seed(std::uint64_t seed) {
  Secret secret;
  for (std::size_t i = 0; i < secret.bytes.size(); i += 8) {
    // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    std::uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    for (std::size_t b = 0; b < 8; ++b) secret.bytes[i + b] = static_cast<std::uint8_t>(z >> 8 * b);
  }
  return secret;
}

}  // namespace millrace
