// The load balancers of all workers: plans, marks of backends, statistics, commands.
// function/deployment.h says which thread may call: that is the thread that makes plans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "function/balance/balance.h"
#include "function/balance/offer.h"
#include "function/balance/settings.h"
#include "function/deployment.h"

namespace millrace {

class BalanceDeployment final : public FunctionDeployment {
 public:
  /// Implements `FunctionKind::deploy`.
  static Result<std::unique_ptr<FunctionDeployment>> create(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);

  Function& make(unsigned worker) override;
  Result<Review> update(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run,
                        const OnEachWorker& on_each) override;
  std::shared_ptr<const FunctionView> view() const override;
  Json statistics() const override;
  std::string table() const override;
  CommandResult<CommandDone> command(std::string_view path, Parameters given,
                                     const OnEachWorker& on_each) override;
  bool tell_first(Json& to, const OnEachWorker& on_each) const override;
  void tell_last(Json& to, const OnEachWorker& on_each) const override;
  void take_last(const Json* said) override;
  Result<void> check_invariants() const override;

  /// @name For tests of the load balancer
  /// @{
  const std::shared_ptr<const BalancePlan>& plan() const { return plan_; }
  Balance& balance(unsigned worker) { return *all_[worker]; }
  /// Returns sums over all workers, in the order of `Balance::statistics`.
  std::vector<ServiceStatistics> services() const;
  /// @}

 private:
  BalanceDeployment(std::shared_ptr<const BalanceSettings> settings, BalanceConfig config,
                    std::shared_ptr<const BalancePlan> plan, BalanceOffer offer)
      : settings_(std::move(settings)),
        config_(std::move(config)),
        plan_(std::move(plan)),
        marked_(std::move(offer.marked)),
        overflowed_(std::move(offer.overflowed)),
        all_(plan_->v4.settings.workers) {}

  Services effective() const;
  bool has(Mark mark, const std::string& service, const std::string& backend) const {
    return marked_[static_cast<std::size_t>(mark)].contains({service, backend});
  }
  void forget_health();
  Result<Review> make_plan(const OnEachWorker& on_each);
  CommandResult<CommandDone> mark(Mark mark, Parameters given, const OnEachWorker& on_each);
  Json list() const;
  bool find_overflowed(std::set<std::string>& all, const OnEachWorker& on_each) const;

  std::shared_ptr<const BalanceSettings> settings_;
  BalanceConfig config_;
  std::shared_ptr<const BalancePlan> plan_;
  Marked marked_;
  // Names of the services that may have served packets without an entry in the previous process,
  // shortly before its end.
  std::set<std::string> overflowed_;
  std::vector<std::unique_ptr<Balance>> all_;  // by worker
};

/// Returns the view that explains packets by this plan.
std::shared_ptr<const FunctionView> view_of(std::shared_ptr<const BalancePlan> plan);

// Statistics as JSON (docs/stats.schema.json) and as text.
Json to_json(const std::vector<ServiceStatistics>& services,
             const MaglevTables::Statistics& maglev);
std::string to_table(const std::vector<ServiceStatistics>& services);

}  // namespace millrace
