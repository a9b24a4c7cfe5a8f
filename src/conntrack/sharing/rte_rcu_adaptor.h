// Grace periods by DPDK's rte_rcu_qsbr, behind a class without DPDK's types: a period is over when
// every worker that is online has ended a burst since the period's start, so that no worker uses
// what was removed before.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "millrace/types.h"

struct rte_rcu_qsbr;

namespace millrace {

/// Thread rule: any thread may call `start` and `is_over`; only a worker's own thread passes the
/// worker's number to the other functions.
class GracePeriods {
 public:
  /// Makes the grace periods of workers 0 to `workers` - 1, none of them online. Errors (failed):
  /// no memory.
  static Result<GracePeriods> create(unsigned workers);

  /// Brings the worker online: from now on grace periods wait for it.
  void begin(unsigned worker);
  /// Reports that the worker keeps nothing that it found before.
  void quiescent(unsigned worker);
  /// Takes the worker offline: grace periods no longer wait for it.
  void end(unsigned worker);

  /// Starts a grace period, and returns its number.
  std::uint64_t start();
  /// True if every worker that is online was quiescent since the period's start. The caller then
  /// sees all that these workers wrote before they were quiescent. Also false while another thread
  /// is in this function.
  bool is_over(std::uint64_t period);

 private:
  struct Free {
    void operator()(rte_rcu_qsbr* variable) const;
  };
  explicit GracePeriods(std::unique_ptr<rte_rcu_qsbr, Free> variable)
      : variable_(std::move(variable)), asking_(std::make_unique<std::atomic_flag>()) {}

  std::unique_ptr<rte_rcu_qsbr, Free> variable_;
  std::unique_ptr<std::atomic_flag> asking_;
};

}  // namespace millrace
