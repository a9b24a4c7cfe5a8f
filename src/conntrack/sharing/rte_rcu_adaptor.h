// DPDK's rte_rcu_qsbr, behind a class that shows none of DPDK's types: tells when every worker has
// passed the end of a burst, so that nobody uses what was removed before.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "millrace/types.h"

struct rte_rcu_qsbr;

namespace millrace {

/// Any thread may ask and begin; a worker's number is used by that worker's thread only.
class GracePeriods {
 public:
  /// For workers 0 to `workers` - 1, none of which has begun.
  static Result<GracePeriods> create(unsigned workers);

  /// The worker begins: from now on it is waited for.
  void begin(unsigned worker);
  /// It keeps nothing that it found before.
  void quiescent(unsigned worker);
  void end(unsigned worker);

  /// A period begins now, ...
  std::uint64_t start();
  /// ... and is over once every worker was quiescent since. False, too, while another thread asks:
  /// who learns that it is over learns all that the workers did before.
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
