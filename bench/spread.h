// What repetitions of one measurement came to.
#pragma once

#include <algorithm>
#include <vector>

namespace millrace::bench {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

/// Of one value at least.
inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace millrace::bench
