// Hash: the keyed hash of the five-tuple, modulo the sum of the weights, is a place in a list that
// has each backend as often as its weight says. The same five-tuple gets the same backend as long
// as the list does not change. (With Maglev, most five-tuples keep their backends when the list
// changes.)
#pragma once

#include <algorithm>
#include <vector>

#include "function/balance/scheduler.h"

namespace millrace {

class HashScheduler final : public Scheduler {
 public:
  explicit HashScheduler(const Pool& pool) {
    std::uint64_t sum = 0;
    for (const Candidate& candidate : pool.candidates) ends_.push_back(sum += candidate.weight);
  }

  std::uint16_t pick(Hash hash) override {
    const auto end = std::ranges::upper_bound(ends_, hash % ends_.back());
    return static_cast<std::uint16_t>(end - ends_.begin());
  }

 private:
  std::vector<std::uint64_t> ends_;  ///< running sum of the weights
};

}  // namespace millrace
