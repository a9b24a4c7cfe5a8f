// A kind of function: all that the rest of the program knows of a function before it is configured.
// Each kind is a constant, so any thread may read it.
//
// To add a function, make a folder beside this file with a `FunctionKind`, and add a line to the
// list in kinds.cc. Besides kinds.cc, only tests and some benchmarks outside that folder include
// its headers (checked by cmake/lint.py).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "function/deployment.h"
#include "function/settings.h"
#include "millrace/types.h"

namespace millrace {

class SettingsReader;

/// A key at the root of the configuration.
struct FunctionKey {
  std::string_view name;
  bool is_list = false;  ///< true: [[name]], any number of them; false: [name]
};

/// A command over the control socket (docs/control.md).
struct FunctionCommand {
  std::string_view path;  ///< "/drain"
  bool changes = false;   ///< true: a POST, refused while another process takes over or a shard
                          ///< moves; false: a GET
  bool is_log = false;    ///< true: a GET of a log's events (`FunctionDeployment::log`)
};

/// An array in the statistics, which DPDK's telemetry offers as /millrace/<key>.
struct FunctionTelemetry {
  std::string_view key;
  std::string_view what;                     ///< description in one line
  std::span<const std::string_view> called;  ///< members of an element that together make its name
};

/// The possible values of a key of the configuration, for `millrace schemes`.
struct FunctionNames {
  std::string_view title;
  std::vector<std::pair<std::string_view, std::string_view>> names;  ///< each with its description
};

/// The ends of originators' packets that a function changes.
enum class Rewrites : std::uint8_t {
  nothing,
  destinations,
  sources,  ///< also destinations: ends that the function has given to sources
};

struct FunctionKind {
  std::string_view name;     ///< name in the keys `function` and `chain` of the configuration
  std::string_view summary;  ///< description in one line, for `millrace schemes`
  Rewrites rewrites = Rewrites::nothing;
  /// True: packets of customers behind tunnels and in VLANs (core/customers.h) may leave. Without
  /// such a function all of them would be dropped.
  bool serves_customers = false;
  std::span<const FunctionKey> keys;
  std::span<const FunctionCommand> commands;
  std::span<const FunctionTelemetry> telemetry;
  std::vector<FunctionNames> (*names)() = [] { return std::vector<FunctionNames>(); };

  /// Returns the settings of a configuration without the function's keys.
  std::shared_ptr<const FunctionSettings> (*defaults)();
  std::unique_ptr<SettingsReader> (*reader)();
  /// Makes the deployment; `settings` must be of this kind. Errors: a setting is wrong (usage); the
  /// offer of the previous process cannot be read (failed).
  Result<std::unique_ptr<FunctionDeployment>> (*deploy)(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);
};

}  // namespace millrace
