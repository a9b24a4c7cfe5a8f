// How a function's part of the configuration is read.
#pragma once

#include <memory>
#include <string_view>

#include "function/settings.h"
#include "toml/keys.h"

namespace millrace {

/// Reads one file, on one thread. What is wrong goes to the problems.
class SettingsReader {
 public:
  virtual ~SettingsReader() = default;
  /// Reads the value of one of the kind's keys (`FunctionKind::keys`).
  virtual void read(std::string_view key, const config::Context& context,
                    const toml::node& node) = 0;
  /// Returns what all keys say together, once the rest of the file has been read.
  virtual std::shared_ptr<const FunctionSettings> finish(config::Problems& problems,
                                                         const Surroundings& around) = 0;
};

}  // namespace millrace
