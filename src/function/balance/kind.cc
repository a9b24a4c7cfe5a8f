#include "function/balance/kind.h"

#include <array>

#include "function/balance/deployment.h"
#include "function/balance/scheduler.h"
#include "function/balance/settings.h"
#include "function/reader.h"

namespace millrace {
namespace {

constexpr std::array<FunctionKey, 2> kKeys{{{"balance"}, {"service", true}}};
constexpr std::array<FunctionCommand, 3> kCommands{
    {{"/services"}, {"/drain", true}, {"/health", true}}};
constexpr std::array<std::string_view, 2> kCalled{"service", "address"};
constexpr std::array<FunctionTelemetry, 1> kTelemetry{
    {{"backends", "Counters of each backend of each service", kCalled}}};

std::vector<FunctionNames> names() {
  FunctionNames all{"scheduler (of a service, in the configuration)", {}};
  for (const SchedulerKind& kind : schedulers()) all.names.emplace_back(kind.name, kind.what);
  return {all};
}

std::shared_ptr<const FunctionSettings> defaults() {
  return std::make_shared<const BalanceSettings>();
}

}  // namespace

const FunctionKind& balance_kind() {
  static constexpr FunctionKind kKind{
      .name = "balance",
      .summary = "load balancer: each new connection to a service gets one of its backends",
      .rewrites = Rewrites::destinations,
      .keys = kKeys,
      .commands = kCommands,
      .telemetry = kTelemetry,
      .names = names,
      .defaults = defaults,
      .reader = balance_reader,
      .deploy = BalanceDeployment::create};
  return kKind;
}

}  // namespace millrace
