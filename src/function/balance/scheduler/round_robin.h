// Round robin: each backend in turn, whatever its weight; those of weight 0 are left out.
#pragma once

#include <vector>

#include "function/balance/scheduler.h"

namespace millrace {

class RoundRobin final : public Scheduler {
 public:
  explicit RoundRobin(const Pool& pool) {
    for (std::size_t i = 0; i < pool.candidates.size(); ++i) {
      if (pool.candidates[i].weight > 0) ring_.push_back(static_cast<std::uint16_t>(i));
    }
  }

  std::uint16_t pick(Hash) override {
    const std::uint16_t place = ring_[next_];
    if (++next_ == ring_.size()) next_ = 0;
    return place;
  }

 private:
  std::vector<std::uint16_t> ring_;
  std::size_t next_ = 0;
};

}  // namespace millrace
