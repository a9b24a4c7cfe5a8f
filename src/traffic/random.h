// Random numbers and distributions in integer arithmetic. The same seed gives the same traffic with
// every compiler, processor and C library, which neither std::distributions nor libm promise.
//
// Plain values; each thread uses values of its own. Not for secrets.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

__extension__ using Uint128 = unsigned __int128;

/// xoshiro256** of Blackman and Vigna ("Scrambled linear pseudorandom number generators", ACM TOMS
/// 2021), seeded by splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed);

  std::uint64_t operator()();
  /// Returns a uniform number in [0, n); n is 1 or more.
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>(Uint128{(*this)()} * n >> 64);
  }
  /// Returns a uniform number in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  /// Returns true with a probability of `p` percent.
  bool percent(unsigned p) { return below(100) < p; }
  /// Returns an exponentially distributed number with the mean `mean`.
  std::uint64_t exponential(std::uint64_t mean);
  /// Returns a number from `low` to `high` with a uniform logarithm; 0 < low <= high < 2^31.
  std::uint64_t log_uniform(std::uint64_t low, std::uint64_t high);

 private:
  std::array<std::uint64_t, 4> state_;
};

/// Returns log2(x) in units of 2^-32, to 24 bits after the point; x is 1 or more.
std::uint64_t log2_q32(std::uint64_t x);
/// Returns 2^(e / 2^32) in units of 2^-32, to about 24 bits; e is below 2^37.
std::uint64_t exp2_q32(std::uint64_t e);

/// A pseudorandom permutation of [0, n), in constant memory.
class Permutation {
 public:
  /// Makes a permutation; n is 1 to 2^32.
  Permutation(std::uint64_t n, std::uint64_t seed);
  /// Returns the image of i, which is below n.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  static constexpr unsigned kRounds = 3;

  std::uint64_t n_;
  std::uint64_t mask_;
  unsigned shift_;
  std::array<std::uint64_t, kRounds> factor_;
  std::array<std::uint64_t, kRounds> offset_;
};

}  // namespace millrace
