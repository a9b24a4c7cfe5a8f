// For tests: the load balancer's settings in a configuration.
#pragma once

#include "config/config.h"
#include "function/balance/balance.h"
#include "function/balance/settings.h"

namespace millrace {

inline const BalanceSettings& settings_in(const Config& config) {
  return dynamic_cast<const BalanceSettings&>(*config.function);
}

/// Returns the configuration of the workers' balancers.
inline BalanceConfig balance_config(const Config& config) {
  return balance_config(settings_in(config), function_run(config));
}

}  // namespace millrace
