// Helpers for tests of workers whose function is the load balancer.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "function/balance/deployment.h"
#include "worker/workers.h"

namespace millrace {

inline std::shared_ptr<const BalanceSettings> settings_of(Services services) {
  BalanceSettings settings;
  settings.services = std::move(services);
  return std::make_shared<const BalanceSettings>(std::move(settings));
}

inline Result<Workers> make_workers(unsigned count, const LineConfig& line,
                                    const BalanceConfig& config,
                                    unsigned entries = Indirection::kMost) {
  BalanceSettings settings;
  settings.services = config.services;
  settings.key = config.key;
  settings.maglev_table_size = config.maglev_table_size;
  settings.stateful = config.stateful;
  return Workers::create(count, line, std::make_shared<const BalanceSettings>(std::move(settings)),
                         {.stateless_when_full = config.stateless_when_full,
                          .quiet_ms = config.quiet_ms,
                          .helpers = config.maglev_threads},
                         entries);
}

inline const BalanceDeployment& balance_of(const Workers& workers) {
  return dynamic_cast<const BalanceDeployment&>(workers.function());
}

inline std::vector<ServiceStatistics> services_of(const Workers& workers) {
  return balance_of(workers).services();
}

/// Replaces all services and backends, while the workers run.
inline Result<std::size_t> update(Workers& workers, Services services) {
  return workers.update(settings_of(std::move(services)), {});
}
/// Replaces all services and backends before the workers run.
inline Result<void> prepare(Workers& workers, Services services) {
  return workers.prepare(settings_of(std::move(services)), {});
}

}  // namespace millrace
