// Options that say how `replay` tracks connections, and how they override a configuration. `bench`
// has its own: what it compares is fixed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "millrace/hash.h"
#include "millrace/memory.h"

namespace millrace::cli {

struct CommonOptions {
  std::optional<std::string> table;
  std::optional<std::string> sharing;
  std::optional<std::string> ageing;
  std::optional<std::size_t> capacity;
  std::optional<double> timeout_s;
  std::optional<unsigned> workers;
  std::optional<std::string> spread;
  std::string pages = "huge";
  std::optional<std::uint64_t> seed;
  bool quiet = false;

  void add_to(CLI::App& command);
  /// The command line overrides the file.
  void apply_to(Config& config) const;
  /// Everything that a line is told. `timeout_s` replaces every timeout.
  LineConfig line_config(const Config& config) const;
  FunctionRun function_run(const Config& config) const;
  /// Of the hash that picks workers.
  Secret spread_secret() const;
};

/// The names that configuration and command line may use.
SchemeNames scheme_names();

}  // namespace millrace::cli
