// A kind of function: all that the rest of the program knows of it before it is configured. A value
// that never changes.
//
// To add a function: a folder beside this one with a `FunctionKind`, and a line in the list of
// kinds.cc. Nothing outside that folder names its types (cmake/lint.py).
#pragma once

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
  bool is_list = false;  ///< [[name]], as often as wanted; else [name]
};

/// A command over the control socket (docs/control.md).
struct FunctionCommand {
  std::string_view path;  ///< "/drain"
  bool changes = false;   ///< a POST, and refused while another process takes over; else a GET
};

/// An array in the statistics, whose elements DPDK's tools get as /millrace/<key>.
struct FunctionTelemetry {
  std::string_view key;
  std::string_view what;                     ///< in one line
  std::span<const std::string_view> called;  ///< members that make an element's name together
};

/// Values of a key of the configuration, for `millrace schemes`.
struct FunctionNames {
  std::string_view title;
  std::vector<std::pair<std::string_view, std::string_view>> names;  ///< with what each is
};

struct FunctionKind {
  std::string_view name;     ///< in `function` and `chain`
  std::string_view summary;  ///< in one line, for `millrace schemes`
  std::span<const FunctionKey> keys;
  std::span<const FunctionCommand> commands;
  std::span<const FunctionTelemetry> telemetry;
  std::vector<FunctionNames> (*names)() = [] { return std::vector<FunctionNames>(); };

  /// Returns what holds where the file says nothing.
  std::shared_ptr<const FunctionSettings> (*defaults)();
  std::unique_ptr<SettingsReader> (*reader)();
  /// Makes the first plan; `settings` are of this kind. Errors say which setting is wrong (usage),
  /// or that what was offered makes no sense (failed).
  Result<std::unique_ptr<FunctionDeployment>> (*deploy)(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);
};

}  // namespace millrace
