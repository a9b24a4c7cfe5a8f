// What `millrace bench tables` reports, for people as tables and for programs as JSON
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
  bool complete = true;  ///< all of the plan
  std::vector<std::string> warnings;
};

Json to_json(const TablesReport& report);

/// Tables for people, up to 100 columns wide.
std::string to_text(const TablesReport& report);

}  // namespace millrace::cli
