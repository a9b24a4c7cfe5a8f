// For tests: reads the firewall's keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "function/deployment.h"
#include "function/firewall/settings.h"
#include "function/reader.h"

namespace millrace::test {

/// The rest of a configuration: ports with addresses and routes. The ports are links 0, 1, ...
struct Around {
  Around() = default;
  Around(const Around&) = delete;
  Around& operator=(const Around&) = delete;

  HostAddresses<AddressV4> v4;
  HostAddresses<AddressV6> v6;
  Surroundings is{.v4 = v4, .v6 = v6, .ports = {}};
};

/// Reads a file with that text. Returns the settings, or the problems, a line each.
inline std::pair<std::shared_ptr<const FunctionSettings>, std::string> read_firewall(
    const std::string& text, const Surroundings& around) {
  config::Problems problems("f");
  const auto reader = firewall_reader();
  for (const auto& [key, node] : toml::parse(text))
    reader->read(key.str(), {problems, std::string(key.str())}, node);
  auto settings = reader->finish(problems, around);
  return {std::move(settings), problems.none() ? std::string() : problems.error().message};
}

/// Returns a member of a rule's statistics.
inline std::uint64_t rule_count(const FunctionDeployment& deployment, const std::string& rule,
                                const std::string& member) {
  const Json all = deployment.statistics();
  for (const Json& one : all["firewall_rules"])
    if (one["rule"] == rule) return one[member];
  return UINT64_MAX;
}

}  // namespace millrace::test
