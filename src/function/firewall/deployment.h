// The firewalls of all workers: plans, sets that change in a run, statistics, commands.
// function/deployment.h says which thread may call.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "function/deployment.h"
#include "function/firewall/firewall.h"
#include "function/firewall/log.h"
#include "function/firewall/plan.h"
#include "function/firewall/settings.h"

namespace millrace {

/// The changes to a set since the file was read: they stay when the file is read again.
struct SetChanges {
  std::set<Prefix<AddressV4>> added_v4, removed_v4;
  std::set<Prefix<AddressV6>> added_v6, removed_v6;

  template <class A>
  std::set<Prefix<A>>& added() {
    return of_family<A>(added_v4, added_v6);
  }
  template <class A>
  const std::set<Prefix<A>>& added() const {
    return of_family<A>(added_v4, added_v6);
  }
  template <class A>
  std::set<Prefix<A>>& removed() {
    return of_family<A>(removed_v4, removed_v6);
  }
  template <class A>
  const std::set<Prefix<A>>& removed() const {
    return of_family<A>(removed_v4, removed_v6);
  }
  bool none() const {
    return added_v4.empty() && added_v6.empty() && removed_v4.empty() && removed_v6.empty();
  }
};
/// Changes by the set's name.
using ChangedSets = std::map<std::string, SetChanges>;

/// Sums over all workers, of one rule or of the default.
struct RuleStatistics {
  std::string name;
  Action action = Action::accept;
  bool is_gone = false;  ///< no longer configured, but connections live that it has accepted
  std::uint64_t connections = 0;
  std::uint64_t live = 0;
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t replies = 0;
  std::uint64_t reply_bytes = 0;
  std::uint64_t refused = 0;  ///< packets that would have begun a connection
  std::uint64_t refused_bytes = 0;
  std::uint64_t limited = 0;     ///< packets above the rule's limit
  std::uint64_t logged = 0;      ///< events in the log
  std::uint64_t not_logged = 0;  ///< events above the log's rate
};

class FirewallDeployment final : public FunctionDeployment {
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
  std::unique_ptr<LogReader> log(std::string_view path, bool only_new) const override;
  bool tell_first(Json& to, const OnEachWorker& on_each) const override;

 private:
  FirewallDeployment(std::shared_ptr<const FirewallSettings> settings, const FunctionRun& run,
                     ChangedSets changes);

  std::vector<PrefixSet> present_sets(const FirewallSettings& settings) const;
  Result<void> take_on(std::shared_ptr<const FirewallSettings> settings,
                       const OnEachWorker& on_each);
  void forget_old_rules();
  std::vector<RuleStatistics> rules() const;
  Json sets() const;
  CommandResult<CommandDone> change_set(Parameters given, const OnEachWorker& on_each);

  ChangedSets changes_;
  std::vector<PrefixSet> sets_;  // of the plan: the file's with the changes
  RuleIds ids_;
  std::shared_ptr<FirewallLog> log_;
  bool others_rewrite_;
  std::shared_ptr<const FirewallPlan> plan_;
  std::vector<std::unique_ptr<Firewall>> all_;  // by worker
};

}  // namespace millrace
