#include "function/nat/kind.h"

#include <array>
#include <string_view>

#include "function/nat/deployment.h"
#include "function/nat/settings.h"
#include "function/reader.h"

namespace millrace {
namespace {

constexpr std::array<FunctionKey, 1> kKeys{{{"nat"}}};
constexpr std::array<FunctionCommand, 3> kCommands{
    {{"/nat/pools"}, {"/nat/customer"}, {"/nat/log"}}};
constexpr std::array<std::string_view, 1> kCalled{"pool"};
constexpr std::array<FunctionTelemetry, 1> kTelemetry{
    {{"nat_pools", "Use of each pool of NAT", kCalled}}};

}  // namespace

const FunctionKind& nat_kind() {
  static constexpr FunctionKind kKind{
      .name = "nat",
      .summary = "NAT for many customers: gives sessions from inside public addresses and ports",
      .rewrites = Rewrites::sources,
      .serves_customers = true,
      .keys = kKeys,
      .commands = kCommands,
      .telemetry = kTelemetry,
      .defaults = default_nat,
      .reader = nat_reader,
      .deploy = NatDeployment::create};
  return kKind;
}

}  // namespace millrace
