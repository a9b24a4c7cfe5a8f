#include "function/firewall/kind.h"

#include <array>

#include "function/firewall/deployment.h"
#include "function/firewall/settings.h"
#include "function/reader.h"

namespace millrace {
namespace {

constexpr std::array<FunctionKey, 2> kKeys{{{"firewall"}, {"zone", true}}};
constexpr std::array<FunctionCommand, 4> kCommands{{{"/firewall/rules"},
                                                    {"/firewall/sets"},
                                                    {"/firewall/set", true},
                                                    {"/firewall/log", false, true}}};
constexpr std::array<std::string_view, 1> kCalled{"rule"};
constexpr std::array<FunctionTelemetry, 1> kTelemetry{
    {{"firewall_rules", "Counters of each rule of the firewall", kCalled}}};

}  // namespace

const FunctionKind& firewall_kind() {
  static constexpr FunctionKind kKind{
      .name = "firewall",
      .summary = "stateful firewall: rules decide which connections may begin",
      .keys = kKeys,
      .commands = kCommands,
      .telemetry = kTelemetry,
      .defaults = default_firewall,
      .reader = firewall_reader,
      .deploy = FirewallDeployment::create};
  return kKind;
}

}  // namespace millrace
