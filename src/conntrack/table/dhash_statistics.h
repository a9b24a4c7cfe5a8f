// Counts of `dhash`, and their expected values by theory (Zhang et al., section IV).
//
// All functions are pure arithmetic: any thread may call them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// Counts of lookups that compare one signature after the other, as the paper's loop does.
struct DHashStatistics {
  std::uint64_t lookups = 0;
  std::uint64_t hits = 0;
  std::uint64_t first_hits = 0;          ///< hits at the slot at which the search began
  std::uint64_t comparisons = 0;         ///< comparisons with slots and list elements
  std::uint64_t second_comparisons = 0;  ///< comparisons repeated with halves swapped
  std::uint64_t false_positives = 0;     ///< signatures that matched although the key did not
  std::size_t entries = 0;
  std::size_t entries_in_lists = 0;

  /// Counts the comparison with a stored signature; `twice`: it was repeated with halves swapped.
  /// Calls `same_key`, to compare the keys, only if the signature matches. Returns true if the
  /// search ends.
  template <class SameKey>
  bool compare(bool twice, bool matches, SameKey&& same_key) {
    ++comparisons;
    second_comparisons += twice;
    if (!matches) return false;
    const bool hit = same_key();
    hits += hit;
    false_positives += !hit;
    return hit;
  }

  double false_positive_rate() const { return share(false_positives, lookups); }
  double first_hit_ratio() const { return share(first_hits, hits); }
  double comparisons_a_lookup() const { return share(comparisons, lookups); }
  double share_in_lists() const { return share(entries_in_lists, entries); }

  static double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

namespace dhash_theory {

inline constexpr unsigned kSlots = 16;

/// Expected value and variance of a number.
struct Estimate {
  double mean = 0;
  double variance = 0;
};

/// Calls `each(k, P(X = k))` for a Poisson-distributed X, for every k with a probability that
/// matters.
template <class Each>
void for_poisson(double mean, Each&& each) {
  const auto last = static_cast<unsigned>(mean + 20 * std::sqrt(mean) + 40);
  for (unsigned k = 0; k <= last; ++k)
    each(k, std::exp(k * std::log(mean) - mean - std::lgamma(k + 1.0)));
}

/// Returns the expected number of entries in conflict lists after `entries` insertions into an
/// empty table: all entries but the first sixteen of each bucket. The variance is for a fixed
/// `entries`.
inline Estimate in_lists_after_filling(double entries, double buckets) {
  const double mean = entries / buckets;
  double over = 0;
  double square = 0;
  double product = 0;
  for_poisson(mean, [&](unsigned k, double p) {
    if (k <= kSlots) return;
    over += p * (k - kSlots);
    square += p * (k - kSlots) * (k - kSlots);
    product += p * (k - kSlots) * k;
  });
  const double covariance = product - over * mean;
  return {buckets * over, buckets * (square - over * over - covariance * covariance / mean)};
}

/// Returns the expected number of entries in conflict lists in the long run, while entries are
/// inserted and erased and none ever moves: an entry that found its bucket full stays in the list
/// even if slots become free. The model is a telephone exchange with overflow from sixteen lines
/// (Erlang 1917 for the mean, which holds for every distribution of lifetimes; Kosten 1937 for the
/// variance, which is an upper bound for a fixed number of entries).
inline Estimate in_lists_under_churn(double entries, double buckets) {
  const double offered = entries / buckets;
  double inverse = 1;
  for (unsigned n = 1; n <= kSlots; ++n) inverse = 1 + n / offered * inverse;
  const double mean = offered / inverse;
  const double variance = mean * (1 - mean + offered / (kSlots + 1 - offered + mean));
  return {buckets * mean, buckets * variance};
}

/// Returns the expected number of false positives if each entry is looked up once: one for every
/// pair of entries in a bucket with equal signatures. With n = `signatures` possible signatures,
/// the expected number in a bucket of k entries is k(k-1)/(2n).
inline Estimate false_positives(double entries, double buckets, double signatures) {
  const double pairs = entries * (entries - 1) / 2 / buckets / signatures;
  return {pairs, pairs};
}

/// Expected cost of a lookup.
struct Search {
  double comparisons = 0;
  double first_hits = 0;  ///< share of hits at the first slot
};

/// Returns the expected cost of finding an entry in a table that was filled and not changed since.
/// With the major location, a bucket is a hash table of sixteen slots with linear probing: Knuth,
/// volume 3, 6.4, theorem K. Without it, the n-th entry of a bucket stands in the n-th slot.
inline Search successful_search(double entries, double buckets, bool major_location) {
  const double mean = entries / buckets;
  Search all;
  for_poisson(mean, [&](unsigned k, double p) {
    const unsigned in_slots = std::min(k, kSlots);
    double cost = in_slots * (in_slots + 1) / 2.0;
    double first = k > 0 ? 1 : 0;
    if (major_location && k > 0) {
      double q = 0;
      double term = 1;
      for (unsigned i = 0; i < in_slots; ++i) {
        q += term;
        term *= static_cast<double>(in_slots - 1 - i) / kSlots;
      }
      cost = in_slots * (1 + q) / 2;
      first = in_slots - in_slots * (in_slots - 1) / 2.0 / kSlots;
    }
    const unsigned listed = k - in_slots;
    cost += listed * kSlots + listed * (listed + 1) / 2.0;
    all.comparisons += p * cost;
    all.first_hits += p * first;
  });
  return {all.comparisons / mean, all.first_hits / mean};
}

}  // namespace dhash_theory
}  // namespace millrace
