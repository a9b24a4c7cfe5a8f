// Weighted round robin, interleaved. A run has as many picks as the sum of the weights; in each run
// every backend is picked exactly as often as its weight says, spread evenly. The next pick is the
// backend with the least (2 * its picks in this run + 1) / its weight (Webster's method of
// apportionment). Backends are kept in a heap, so a pick costs O(log backends).
#pragma once

#include <algorithm>
#include <vector>

#include "function/balance/scheduler.h"

namespace millrace {

class WeightedRoundRobin final : public Scheduler {
 public:
  explicit WeightedRoundRobin(const Pool& pool) {
    for (std::size_t i = 0; i < pool.candidates.size(); ++i) {
      const std::uint32_t weight = pool.candidates[i].weight;
      if (weight > 0) heap_.push_back({weight, 0, static_cast<std::uint16_t>(i)});
      run_ += weight;
    }
    std::ranges::make_heap(heap_, later);
  }

  std::uint16_t pick(Hash) override {
    std::ranges::pop_heap(heap_, later);
    const std::uint16_t place = heap_.back().place;
    ++heap_.back().picks;
    std::ranges::push_heap(heap_, later);
    if (++picked_ == run_) restart();
    return place;
  }

 private:
  struct Turn {
    std::uint64_t weight;
    std::uint64_t picks;
    std::uint16_t place;
  };

  static bool later(const Turn& a, const Turn& b) {
    const std::uint64_t left = (2 * a.picks + 1) * b.weight;
    const std::uint64_t right = (2 * b.picks + 1) * a.weight;
    return left != right ? left > right : a.place > b.place;
  }

  void restart() {
    picked_ = 0;
    for (Turn& turn : heap_) turn.picks = 0;
    std::ranges::make_heap(heap_, later);
  }

  std::vector<Turn> heap_;
  std::uint64_t run_ = 0;
  std::uint64_t picked_ = 0;
};

}  // namespace millrace
