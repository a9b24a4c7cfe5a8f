// Reclamation of removed ids if workers share tables: an id is reclaimed once every worker that
// uses the tables has ended a burst since the id's removal (quiescent-state-based reclamation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "conntrack/sharing/rte_rcu_adaptor.h"
#include "conntrack/sharing/sharing.h"
#include "millrace/stragglers.h"

namespace millrace {

/// Reclaims the ids that one worker removed. The ids in `waiting_` were removed before grace period
/// `period_` began; ids removed since then (`draining_`) wait for the next grace period.
class ReclaimAfterGrace {
 public:
  static std::size_t more_ids(unsigned workers) {
    return std::size_t{kBurstsDraining} * Stragglers::kMax * workers;
  }
  static Result<std::vector<ReclaimAfterGrace>> create(unsigned workers) {
    auto periods = GracePeriods::create(workers);
    if (!periods) return std::unexpected(periods.error());
    const auto shared = std::make_shared<GracePeriods>(std::move(*periods));
    std::vector<ReclaimAfterGrace> all;
    for (unsigned worker = 0; worker < workers; ++worker)
      all.push_back(ReclaimAfterGrace(shared, worker));
    return all;
  }

  void begin() { periods_->begin(worker_); }
  void end() { periods_->end(worker_); }
  void add(Side side, ConnId id) { draining_.add(side, id); }
  bool has_room() const { return draining_.has_room(); }
  bool is_empty() const { return draining_.empty() && waiting_.empty(); }

  template <class Table, class Writing>
  void end_burst(TablePair<Table>& pair, Writing&& writing) {
    periods_->quiescent(worker_);
    if (!waiting_.empty()) {
      if (!periods_->is_over(period_)) return;
      [[maybe_unused]] const auto guard = writing();
      waiting_.release(pair);
    }
    if (draining_.empty()) return;
    std::swap(waiting_, draining_);
    period_ = periods_->start();
  }

 private:
  static constexpr unsigned kBurstsDraining = 8;

  ReclaimAfterGrace(std::shared_ptr<GracePeriods> periods, unsigned worker)
      : periods_(std::move(periods)), worker_(worker) {}

  std::shared_ptr<GracePeriods> periods_;
  unsigned worker_;
  DrainingIds draining_;
  DrainingIds waiting_;
  std::uint64_t period_ = 0;
};

static_assert(Reclaims<ReclaimAfterGrace>);

}  // namespace millrace
