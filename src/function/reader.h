// The contract of a reader: reads a function's part of the configuration.
#pragma once

#include <memory>
#include <string_view>

#include "function/settings.h"
#include "toml/keys.h"

namespace millrace {

/// Reads one file, on one thread. The caller calls `read` for each of the kind's keys in the file,
/// then `finish`. Errors go to `Problems`.
class SettingsReader {
 public:
  virtual ~SettingsReader() = default;
  /// Reads the value of one of the kind's keys (`FunctionKind::keys`).
  virtual void read(std::string_view key, const config::Context& context,
                    const toml::node& node) = 0;
  /// Returns the settings. Called once the rest of the file has been read; checks what depends on
  /// several keys.
  virtual std::shared_ptr<const FunctionSettings> finish(config::Problems& problems,
                                                         const Surroundings& around) = 0;
};

}  // namespace millrace
