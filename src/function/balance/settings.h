// The settings of the load balancer: [balance] and [[service]] in a configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "function/balance/maglev.h"
#include "function/balance/service.h"
#include "function/settings.h"

namespace millrace {

class SettingsReader;
struct BalanceConfig;

/// The treatment of packets that no function handles.
enum class Unmatched : std::uint8_t { pass, drop };

inline constexpr std::string_view kOneWay =
    "has services whose replies do not come back (dsr, or a prefix)";
inline constexpr std::string_view kNeedsStateful =
    "needs balance.stateful = true: otherwise balance keeps no connections";

struct BalanceSettings final : FunctionSettings {
  bool stateful = true;
  Unmatched unmatched = Unmatched::pass;
  BalanceKey key = kDefaultBalanceKey;
  std::uint32_t maglev_table_size = Maglev::kDefaultSize;
  bool services_given = false;  ///< false: `services` are the default ones
  Services services = default_services();

  const FunctionKind& kind() const override;
  FunctionFacts facts() const override;
  std::vector<std::string> unchangeable(const FunctionSettings& is) const override;
  void append_doubts(const Surroundings& around, std::vector<std::string>& all) const override;
  void tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>& v6) const override;
};

/// Returns the configuration for the workers' functions.
BalanceConfig balance_config(const BalanceSettings& settings, const FunctionRun& run);

std::unique_ptr<SettingsReader> balance_reader();

}  // namespace millrace
