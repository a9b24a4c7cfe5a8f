// The options of `replay` that choose how connections are tracked; they override the configuration.
// `bench` has options of its own, since it compares schemes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
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
  /// Overrides `config` with the options that were given.
  void apply_to(Config& config) const;
  /// Returns the settings of a line. `timeout_s`, if given, replaces every timeout.
  LineConfig line_config(const Config& config) const;
  FunctionRun function_run(const Config& config) const;
  /// Returns the secret of the hash that picks workers. It differs from that of the tables.
  Secret spread_secret() const;
};

/// Returns "1 NAT pool, 3 NAT rules"; "" if there are no counts.
std::string counts_text(std::span<const FunctionFacts::Count> counts);

/// Returns the names of all schemes that a configuration or the command line may choose.
SchemeNames scheme_names();

}  // namespace millrace::cli
