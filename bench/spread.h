// Statistics of repeated measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

namespace millrace::bench {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

/// Returns the median of sorted values; of an even number of values the mean of the middle two.
/// There must be a value.
inline double median_of(const std::vector<double>& sorted) {
  return std::midpoint(sorted[(sorted.size() - 1) / 2], sorted[sorted.size() / 2]);
}

/// Returns the median, the least and the greatest value. There must be a value.
inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {median_of(values), values.front(), values.back()};
}

/// Returns the median and its 95 % confidence interval, from the ranks of the values (binomial).
/// For fewer than six values returns their whole range, whose confidence is below 95 %.
inline Spread confidence_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  const auto least = static_cast<std::size_t>(std::max(count - 1.96 * std::sqrt(count), 0.0) / 2);
  return {median_of(values), values[least], values[values.size() - 1 - least]};
}

using Percentiles = std::vector<std::pair<double, double>>;  // percent, value

/// Returns, for each percentage, the least value that this share of the values does not exceed.
/// There must be a value.
inline Percentiles percentiles_of(std::vector<float> values,
                                  std::initializer_list<double> percents) {
  std::ranges::sort(values);
  Percentiles all;
  for (const double percent : percents) {
    const double count = std::ceil(percent / 100 * static_cast<double>(values.size()));
    all.emplace_back(percent,
                     values[std::max<std::size_t>(static_cast<std::size_t>(count), 1) - 1]);
  }
  return all;
}

}  // namespace millrace::bench
