// Least connections: picks the backend that has the fewest connections for its weight, the new
// connection included. Among several such backends, picks the one with the fewest real connections
// (below) for its weight; if these are equal, too, the backends take turns. A pick costs
// O(backends).
//
// Only proved connections that the two sides have not ended count, so that neither lingering
// connections nor a SYN flood weigh. But a burst of new connections must not go to one backend
// before the first replies come. So of the latest `kLately` picks, each that is not proved yet
// counts as a quarter of a connection.
//
// When the list of backends changes, each backend begins as if it had as many connections per unit
// of weight as the backend that has most. These seeming connections decrease by half a connection
// for each real one that the backend gets. So a new backend gets at most twice as many new
// connections as another backend of its weight, until it has as many.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "function/balance/scheduler.h"

namespace millrace {

class LeastConnections final : public Scheduler {
 public:
  explicit LeastConnections(const Pool& pool)
      : candidates_(pool.candidates), seeming_(candidates_.size()), lately_(candidates_.size()) {
    lately_picked_.fill(kNobody);
    for (std::size_t i = 0; i < candidates_.size(); ++i) lately_[i].proved = proved(i);
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
    fade(best, kPendingWeight);
    note(static_cast<std::uint16_t>(best));
    return static_cast<std::uint16_t>(best);
  }

 private:
  static constexpr std::size_t kLately = 64;
  static constexpr double kPendingWeight = 0.25;
  static constexpr std::uint32_t kNobody = 0xffffffff;

  struct Load {
    double seeming = 0;
    double real = 0;

    friend auto operator<=>(const Load&, const Load&) = default;
  };
  Load load_of(std::size_t i) {
    const double real = active(i) + pending(i) * kPendingWeight + 1;
    return {(real + seeming_[i]) / candidates_[i].weight, real / candidates_[i].weight};
  }

  double active(std::size_t i) const {
    return static_cast<double>(
        std::max<std::int64_t>(candidates_[i].activity->active.difference(), 0));
  }
  std::uint64_t proved(std::size_t i) const { return candidates_[i].activity->proved.value(); }

  /// The picks of a backend among the latest `kLately`.
  struct Lately {
    std::uint32_t picks = 0;
    std::uint32_t answered = 0;  ///< picks that count as proved: one for each proved connection
    std::uint64_t proved = 0;    ///< the backend's count of proved connections when last read
  };
  /// Returns how many of the latest picks of the backend are not proved.
  std::uint32_t pending(std::size_t i) {
    Lately& of = lately_[i];
    const std::uint64_t more = proved(i) - std::exchange(of.proved, proved(i));
    of.answered = static_cast<std::uint32_t>(std::min<std::uint64_t>(of.answered + more, of.picks));
    fade(i, static_cast<double>(more) * (1 - kPendingWeight));
    return of.picks - of.answered;
  }
  /// Lowers the backend's seeming connections by half of the `more` real ones that it got.
  void fade(std::size_t i, double more) { seeming_[i] = std::max(seeming_[i] - more / 2, 0.0); }
  /// Returns the greatest number of connections per unit of weight that a backend has.
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
    if (oldest != kNobody) {
      --lately_[oldest].picks;
      if (lately_[oldest].answered > 0) --lately_[oldest].answered;
    }
    oldest = place;
    ++lately_[place].picks;
  }

  std::span<const Candidate> candidates_;
  std::vector<double> seeming_;  ///< connections that a backend seems to have beside its real ones
  std::vector<Lately> lately_;
  std::array<std::uint32_t, kLately> lately_picked_;
  std::size_t noted_ = 0;
  std::size_t next_ = 0;
};

}  // namespace millrace
