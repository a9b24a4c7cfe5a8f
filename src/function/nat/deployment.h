// The NAT of all workers: settings, statistics, commands. function/deployment.h says which thread
// may call.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "function/deployment.h"
#include "function/nat/block_log.h"
#include "function/nat/nat.h"
#include "function/nat/port_blocks.h"
#include "function/nat/settings.h"

namespace millrace {

class NatDeployment final : public FunctionDeployment {
 public:
  /// Implements `FunctionKind::deploy`.
  static Result<std::unique_ptr<FunctionDeployment>> create(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);

  Function& make(unsigned worker) override;
  Result<Review> update(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run,
                        const OnEachWorker& on_each) override;
  bool can_undo_update() const override { return false; }  // lost blocks do not come back
  bool may_give() const override { return store_->may_give(); }
  bool tell_first(Json& to, const OnEachWorker& on_each) const override;
  std::shared_ptr<const FunctionView> view() const override;
  Json statistics() const override;
  std::vector<std::string> alarms() const override;
  std::string table() const override;
  CommandResult<CommandDone> command(std::string_view path, Parameters given,
                                     const OnEachWorker& on_each) override;
  void tell_last(Json& to, const OnEachWorker& on_each) const override;
  void take_last(const Json* said) override;

 private:
  NatDeployment(std::shared_ptr<const NatSettings> settings, std::shared_ptr<PortBlocks> blocks,
                std::unique_ptr<BlockLog> log, const FunctionRun& run);

  Json pools(bool with_nearest) const;
  Json logs() const;
  CommandResult<Json> customer(Parameters given) const;

  std::shared_ptr<const NatSettings> settings_;
  std::shared_ptr<PortBlocks> blocks_;
  std::shared_ptr<const BlockStore> store_;  // of all `blocks_`
  std::unique_ptr<BlockLog> log_;            // null: there is none
  std::vector<std::unique_ptr<Nat>> all_;    // by worker
  const bool is_live_;
  /// While another process's connections are taken over: customers up to this number are the same
  /// there.
  Zone same_customers_ = Customers::kMost;
};

}  // namespace millrace
