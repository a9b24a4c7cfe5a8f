// Writes the results of `millrace bench tables`: as tables for people and as JSON for programs
// (docs/bench-tables.schema.json).
#pragma once

#include <string>
#include <vector>

#include "bench/tables.h"
#include "core/json.h"

namespace millrace::cli {

struct TablesReport {
  const bench::TablesPlan* plan = nullptr;
  bench::TablesResult result;
  bool complete = true;  ///< the whole plan was measured
  std::vector<std::string> warnings;
};

/// Returns the results as JSON.
Json to_json(const TablesReport& report);

/// Returns tables for people, up to 100 columns wide.
std::string to_text(const TablesReport& report);

}  // namespace millrace::cli
