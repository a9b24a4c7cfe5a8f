// When ids that were removed may be given out again, under sharing: once every worker has ended a
// burst since (quiescent-state-based reclamation).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "conntrack/sharing/rte_rcu_adaptor.h"
#include "conntrack/sharing/table_pair.h"
#include "millrace/table.h"

namespace millrace {

/// Invariants:
///  1. An id that drained before a period began is settled only when that period is over.
///  2. At most one period is under way; what drains meanwhile waits for the next.
///  3. `period`, `originators` and `replies` change only under the guard of writers.
///  4. While something drains, a period is under way or `drains` is set.
/// A worker's number is used by that worker's thread only.
class SettleAfterGrace {
 public:
  static std::size_t more_ids(unsigned workers) {
    return std::size_t{kBurstsDraining} * Stragglers::kMax * workers;
  }
  static Result<SettleAfterGrace> create(unsigned workers) {
    auto periods = GracePeriods::create(workers);
    if (!periods) return std::unexpected(periods.error());
    return SettleAfterGrace(std::move(*periods));
  }

  void begin(unsigned worker) { periods_.begin(worker); }
  void end(unsigned worker) { periods_.end(worker); }

  /// `writing()` gives the guard under which tables may be changed.
  template <class Table, class Writing>
  void end_burst(unsigned worker, TablePair<Table>& pair, Writing&& writing) {
    periods_.quiescent(worker);
    const std::uint64_t period = state_->period.load(std::memory_order_acquire);
    if (period == kNone ? !state_->drains.load(std::memory_order_relaxed) : !is_over(period))
      return;
    [[maybe_unused]] const auto guard = writing();
    if (state_->period.load(std::memory_order_relaxed) != period)
      return;  // another worker was first
    if (period != kNone) {
      pair.originators.settle(state_->originators);
      if (pair.replies) pair.replies->settle(state_->replies);
    }
    state_->originators = pair.originators.draining();
    state_->replies = pair.replies ? pair.replies->draining() : 0;
    const bool more = state_->originators + state_->replies != 0;
    state_->drains.store(more, std::memory_order_relaxed);
    state_->period.store(more ? periods_.start() : kNone, std::memory_order_release);
  }
  /// Something was removed; under the guard.
  void note_draining() { state_->drains.store(true, std::memory_order_relaxed); }

 private:
  static constexpr unsigned kBurstsDraining = 8;
  static constexpr std::uint64_t kNone = 0;

  /// One worker asks at a time: what it learns of the others orders what they did before what is
  /// done with the ids, for whoever asks next, too.
  bool is_over(std::uint64_t period) {
    if (state_->asking.test_and_set(std::memory_order_acquire)) return false;
    const bool over = periods_.is_over(period);
    state_->asking.clear(std::memory_order_release);
    return over;
  }

  /// Behind a pointer, so that it can be moved before it is used.
  struct State {
    std::atomic_flag asking;
    std::atomic<std::uint64_t> period = kNone;  ///< under way
    std::atomic<bool> drains = false;           ///< something drains
    std::size_t originators = 0;                ///< so many of them may be settled after it
    std::size_t replies = 0;
  };

  explicit SettleAfterGrace(GracePeriods periods)
      : periods_(std::move(periods)), state_(std::make_unique<State>()) {}

  GracePeriods periods_;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
