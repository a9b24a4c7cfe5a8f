// The keys of one measurement, made before it, and the results that a correct table gives for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "bench/contender.h"

namespace millrace::bench {

/// Keys, in the order in which a table gets them. `filling` fills the table; `second` replaces
/// these keys burst by burst, in the random order of `first`; then some keys of `second` are
/// replaced by `third`, and back, in turn; then comes the mix.
template <class K>
struct Workload {
  std::vector<K> filling;
  std::vector<K> first;  ///< `filling` in another order
  std::vector<K> second;
  std::vector<K> third;
  std::vector<std::uint32_t> hit_of;  ///< place in `second` of each key of `hits`
  std::vector<K> hits;                ///< kStreams streams of kStream keys, timed in turn
  std::vector<K> misses;              ///< never inserted
  Mix<K> mix;
  std::size_t mixed_hits = 0;  ///< keys of mix.lookups that are present
  std::vector<K> coming;       ///< for single insertions
  std::vector<K> leaving;      ///< erased, one before each single insertion
  std::vector<K> beyond;       ///< for insertions past the promised capacity

  static constexpr std::size_t kStream = std::size_t{1} << 20;
  static constexpr std::size_t kStreams = 4;

  Workload(std::size_t live, std::size_t promised, std::uint64_t seed);

  /// Returns the keys of `second` that are erased for `third`.
  std::span<const K> swapped() const { return std::span(second).first(third.size()); }

 private:
  std::uint64_t next_ = 0;
  std::mt19937_64 random_;

  std::vector<K> fresh(std::size_t count) {
    std::vector<K> keys(count);
    for (K& key : keys) key = key_number<K>(next_++);
    return keys;
  }
  void make_lives(std::size_t live);
  void make_hits(std::size_t live);
  void make_mix(std::span<const K> stay, std::span<const K> leave);
};

template <class K>
Workload<K>::Workload(std::size_t live, std::size_t promised, std::uint64_t seed) : random_(seed) {
  make_lives(live);
  make_hits(live);
  const std::span<const K> rest = std::span(second).subspan(third.size());
  const std::size_t quarter = std::min(live / 4, std::size_t{1} << 15);
  make_mix(rest.subspan(2 * quarter), rest.first(quarter));
  leaving.assign(rest.begin() + static_cast<std::ptrdiff_t>(quarter),
                 rest.begin() + static_cast<std::ptrdiff_t>(2 * quarter));
  coming = fresh(leaving.size());
  if (promised > 0) beyond = fresh(promised * 6 / 5 - std::min(live, promised));
}

template <class K>
void Workload<K>::make_lives(std::size_t live) {
  first = filling = fresh(live);
  std::ranges::shuffle(first, random_);
  second = fresh(live);
  third = fresh(std::min(live / 4, std::size_t{1} << 18));
  misses = fresh(kStream);
}

/// Makes the hits: rounds of all keys of `second`, each in a new random order, so that all keys are
/// equally frequent.
template <class K>
void Workload<K>::make_hits(std::size_t live) {
  const std::size_t count = kStream * kStreams;
  std::vector<std::uint32_t> order(live);
  for (std::size_t i = 0; i < live; ++i) order[i] = static_cast<std::uint32_t>(i);
  while (hit_of.size() < count) {
    std::ranges::shuffle(order, random_);
    hit_of.insert(
        hit_of.end(), order.begin(),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(live, count - hit_of.size())));
  }
  hits.reserve(count);
  for (const std::uint32_t i : hit_of) hits.push_back(second[i]);
}

/// Makes the mix: on average 95 hits, of keys of `stay`, to 4 misses. The missing keys are
/// inserted, and as many keys of `leave` are erased.
template <class K>
void Workload<K>::make_mix(std::span<const K> stay, std::span<const K> leave) {
  const std::size_t count = leave.size() * 99 / 4 / Mix<K>::kStep * Mix<K>::kStep;
  std::uint32_t gone = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (random_() % 99 < 4 && gone < leave.size()) {
      mix.lookups.push_back(key_number<K>(next_++));
      ++gone;
    } else {
      mix.lookups.push_back(stay[random_() % stay.size()]);
      ++mixed_hits;
    }
    if (i % Mix<K>::kStep == Mix<K>::kStep - 1) mix.left_after.push_back(gone);
  }
  mix.leaving.assign(leave.begin(), leave.end());
}

}  // namespace millrace::bench
