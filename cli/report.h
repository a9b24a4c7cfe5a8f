// What a run reports, for people as a table and for programs as JSON (docs/stats.schema.json).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "function/balance/balance.h"
#include "worker/line.h"

namespace millrace::cli {

struct RunReport {
  std::string input;
  const Line* line = nullptr;  ///< at rest
  const Balance* balance = nullptr;
  LineConfig config;
  std::uint64_t elapsed_ns = 0;  ///< on the packets' way, output left out
  std::optional<std::uint64_t> seed;
  bool interrupted = false;
  std::vector<std::string> warnings;
};

/// The object of `--stats`.
nlohmann::ordered_json to_json(const RunReport& report);

/// A table for people, many lines.
std::string to_table(const RunReport& report);

}  // namespace millrace::cli
