#include "traffic/random.h"

#include <algorithm>
#include <bit>

namespace millrace {
namespace {

constexpr std::uint64_t kOneQ63 = std::uint64_t{1} << 63;
constexpr unsigned kFractionBits = 24;

constexpr std::uint64_t square_root(Uint128 x) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = kOneQ63; bit != 0; bit >>= 1) {
    const std::uint64_t larger = root | bit;
    if (Uint128{larger} * larger <= x) root = larger;
  }
  return root;
}

/// Element i is 2^(2^-(i+1)), with 63 bits after the point.
constexpr auto kRoots = [] {
  std::array<std::uint64_t, kFractionBits> roots{};
  Uint128 square = Uint128{1} << 127;  // 2, with 126 bits after the point
  for (auto& root : roots) {
    root = square_root(square);
    square = Uint128{root} << 63;
  }
  return roots;
}();

std::uint64_t split_mix(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace

Random::Random(std::uint64_t seed) : state_() {
  for (auto& word : state_) word = split_mix(seed);
}

std::uint64_t Random::operator()() {
  auto& s = state_;
  const std::uint64_t result = std::rotl(s[1] * 5, 7) * 9;
  const std::uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

std::uint64_t Random::exponential(std::uint64_t mean) {
  constexpr std::uint64_t kLn2 = 2'977'044'472;  // in units of 2^-32
  const std::uint64_t minus_log2 = (std::uint64_t{64} << 32) - log2_q32((*this)() | 1);
  return static_cast<std::uint64_t>((Uint128{minus_log2} * kLn2 >> 32) * mean >> 32);
}

std::uint64_t Random::log_uniform(std::uint64_t low, std::uint64_t high) {
  const std::uint64_t exponent = between(log2_q32(low), log2_q32(high));
  return std::clamp(exp2_q32(exponent) >> 32, low, high);
}

std::uint64_t log2_q32(std::uint64_t x) {
  const auto zeros = static_cast<unsigned>(std::countl_zero(x));
  std::uint64_t mantissa = x << zeros;  // [1, 2), 63 bits after the point
  std::uint64_t log = 63 - zeros;
  for (unsigned i = 0; i < kFractionBits; ++i) {
    const Uint128 square = Uint128{mantissa} * mantissa;  // [1, 4), 126 bits after the point
    const bool two_or_more = square >> 127 != 0;
    mantissa = static_cast<std::uint64_t>(square >> (two_or_more ? 64 : 63));
    log = log << 1 | (two_or_more ? 1 : 0);
  }
  return log << (32 - kFractionBits);
}

std::uint64_t exp2_q32(std::uint64_t e) {
  std::uint64_t mantissa = kOneQ63;
  for (unsigned i = 0; i < kFractionBits; ++i) {
    if ((e >> (31 - i) & 1) != 0) {
      mantissa = static_cast<std::uint64_t>(Uint128{mantissa} * kRoots[i] >> 63);
    }
  }
  return mantissa >> (31 - (e >> 32));
}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed)
    : n_(n),
      mask_(std::bit_ceil(n) - 1),
      shift_(static_cast<unsigned>(std::popcount(mask_) + 1) / 2),
      factor_(),
      offset_() {
  Random random(seed);
  for (auto& factor : factor_) factor = random() | 1;
  for (auto& offset : offset_) offset = random();
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  // Each round permutes [0, mask]. Repeating until the result is below n permutes [0, n).
  do {
    for (unsigned round = 0; round < kRounds; ++round) {
      i = (i * factor_[round] + offset_[round]) & mask_;
      if (shift_ != 0) i ^= i >> shift_;
    }
  } while (i >= n_);
  return i;
}

}  // namespace millrace
