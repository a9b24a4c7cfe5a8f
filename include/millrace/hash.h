// The keyed hash of a key.
//
// An attacker that chooses five-tuples must not be able to fill one bucket with them. Each 16-byte
// block of the key passes four rounds of AES with round keys of its own, and the results are XORed.
// For independent random round keys, the probability that two given inputs have any one given
// output difference is at most 2^-113 (Keliher and Sui, IET Information Security 2007, for the
// bound over four rounds; Minematsu and Tsunoo, FSE 2006, for its use as a universal hash). Some 20
// bits of the output pick a bucket. That few keys share a bucket is therefore plausible but not
// proved: the bound, summed over all differences that are 0 in those bits, is far above 2^-20. The
// hash is not a MAC: never show its output to an attacker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/detail/aes.h"
#include "millrace/detail/check.h"
#include "millrace/key.h"

namespace millrace {

using Hash = std::uint64_t;

/// Round keys of the hash. An attacker that knows them can aim keys at one bucket.
struct Secret {
  static constexpr unsigned kBlocks = 3;  // the 40 bytes of an IPv6 key
  static constexpr unsigned kRounds = 4;
  std::array<std::uint8_t, std::size_t{16} * kBlocks*(kRounds + 1)> bytes{};

  /// Draws a secret from the system's entropy.
  static Secret random();
  /// Derives a secret from a seed, the same on every machine: for tests and reproducible runs only.
  static Secret from_seed(std::uint64_t seed);
};

inline namespace MILLRACE_ISA {

/// Hashes keys under one secret. Immutable: any thread may use it.
class Hasher {
 public:
  explicit Hasher(const Secret& secret) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      keys_[i] = detail::aes_load(secret.bytes.data() + 16 * i);
    }
  }

  template <class A>
  Hash operator()(const Key<A>& key) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&key);
    if constexpr (sizeof(key) == 16) {
      return detail::aes_low(mix(detail::aes_load(bytes), 0));
    } else {
      static_assert(sizeof(key) == 40);
      const auto ab =
          detail::aes_xor(mix(detail::aes_load(bytes), 0), mix(detail::aes_load(bytes + 16), 1));
      return detail::aes_low(detail::aes_xor(ab, mix(detail::aes_load_low(key.word(32)), 2)));
    }
  }

  /// Writes the hash of `keys[i]` into `hashes[i]`. `hashes` must be as long as `keys` or longer.
  template <class A>
  void operator()(std::span<const Key<A>> keys, std::span<Hash> hashes) const {
    MILLRACE_CHECK(hashes.size() >= keys.size(), "Hasher",
                   "hashes must be as long as keys or longer");
    for (std::size_t i = 0; i < keys.size(); ++i) hashes[i] = (*this)(keys[i]);
  }

 private:
  detail::AesBlock mix(detail::AesBlock block, unsigned which) const {
    const detail::AesBlock* key = &keys_[std::size_t{which} * (Secret::kRounds + 1)];
    block = detail::aes_xor(block, key[0]);
    for (unsigned round = 1; round <= Secret::kRounds; ++round) {
      block = detail::aes_round(block, key[round]);
    }
    return block;
  }

  std::array<detail::AesBlock, std::size_t{Secret::kBlocks} * (Secret::kRounds + 1)> keys_;
};

}  // namespace MILLRACE_ISA
}  // namespace millrace
