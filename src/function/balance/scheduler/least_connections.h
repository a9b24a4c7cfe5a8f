// Least connections: the backend that has the fewest connections for its weight, the new one
// counted in; of several the one that has fewest in truth, else they take turns. O(backends) a
// pick.
//
// What counts is what goes on: not what both sides have ended, nor what nothing has proved yet, so
// that neither lingering connections nor a SYN flood weigh. So that a burst does not go to one
// backend before the first answers come, the latest `kLately` picks count, too.
//
// When the list of backends changes, each begins as if it had as many connections as the one that
// has most; of what it seems to have, every pick takes half a connection away. So a new backend
// gets at most twice as many new connections as another one of its weight, until it has as many.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "function/balance/scheduler.h"

namespace millrace {

class LeastConnections final : public Scheduler {
 public:
  explicit LeastConnections(const Pool& pool)
      : candidates_(pool.candidates), seeming_(candidates_.size()), lately_(candidates_.size()) {
    lately_picked_.fill(kNobody);
    const double most = most_for_weight();
    for (std::size_t i = 0; i < candidates_.size(); ++i) seeming_[i] = missing(i, most);
  }

  std::uint16_t pick(Hash) override {
    const double most = most_for_weight();
    std::size_t best = candidates_.size();
    Load least;
    for (std::size_t n = 0, i = next_; n < candidates_.size(); ++n) {
      if (candidates_[i].weight > 0) {
        seeming_[i] = std::min(seeming_[i], missing(i, most));
        const Load load = load_of(i);
        if (best == candidates_.size() || load < least) {
          best = i;
          least = load;
        }
      }
      if (++i == candidates_.size()) i = 0;
    }
    next_ = best + 1 == candidates_.size() ? 0 : best + 1;
    seeming_[best] = std::max(seeming_[best] - 0.5, 0.0);
    note(static_cast<std::uint16_t>(best));
    return static_cast<std::uint16_t>(best);
  }

 private:
  static constexpr std::size_t kLately = 64;
  static constexpr std::uint32_t kNobody = 0xffffffff;

  struct Load {
    double seeming = 0;
    double real = 0;

    friend auto operator<=>(const Load&, const Load&) = default;
  };
  Load load_of(std::size_t i) const {
    const double real = active(i) + lately_[i] + 1;
    return {(real + seeming_[i]) / candidates_[i].weight, real / candidates_[i].weight};
  }

  double active(std::size_t i) const {
    return static_cast<double>(std::max<std::int64_t>(candidates_[i].active->difference(), 0));
  }
  /// The most connections that a backend has, for one of its weight.
  double most_for_weight() const {
    double most = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].weight > 0) most = std::max(most, active(i) / candidates_[i].weight);
    }
    return most;
  }
  double missing(std::size_t i, double most) const {
    return std::max(most * candidates_[i].weight - active(i), 0.0);
  }
  void note(std::uint16_t place) {
    std::uint32_t& oldest = lately_picked_[noted_++ % kLately];
    if (oldest != kNobody) --lately_[oldest];
    oldest = place;
    ++lately_[place];
  }

  std::span<const Candidate> candidates_;
  std::vector<double> seeming_;        ///< connections that it seems to have beside its own
  std::vector<std::uint32_t> lately_;  ///< of the latest picks
  std::array<std::uint32_t, kLately> lately_picked_;
  std::size_t noted_ = 0;
  std::size_t next_ = 0;
};

}  // namespace millrace
