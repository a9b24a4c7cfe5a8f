// Least connections: the backend that has the fewest live connections for its weight, the new one
// counted in. Among equals they take turns. O(backends) a pick.
#pragma once

#include "function/balance/scheduler.h"

namespace millrace {

class LeastConnections final : public Scheduler {
 public:
  explicit LeastConnections(const Pool& pool) : candidates_(pool.candidates) {}

  std::uint16_t pick(Hash) override {
    std::size_t best = candidates_.size();
    for (std::size_t n = 0, i = next_; n < candidates_.size(); ++n) {
      if (candidates_[i].weight > 0 && (best == candidates_.size() || freer(i, best))) best = i;
      if (++i == candidates_.size()) i = 0;
    }
    next_ = best + 1 == candidates_.size() ? 0 : best + 1;
    return static_cast<std::uint16_t>(best);
  }

 private:
  bool freer(std::size_t a, std::size_t b) const {
    return (candidates_[a].live->value() + 1) * candidates_[b].weight <
           (candidates_[b].live->value() + 1) * candidates_[a].weight;
  }

  std::span<const Candidate> candidates_;
  std::size_t next_ = 0;
};

}  // namespace millrace
