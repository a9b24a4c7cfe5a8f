// Pairs of tables and sharing schemes that a benchmark measures.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "line/line.h"
#include "millrace/types.h"

namespace millrace::bench {

/// Returns those of `tables` that go with the sharing scheme `sharing`; if `tables` is empty, all
/// tables that go with it.
inline std::vector<std::string> tables_among(std::vector<std::string> tables,
                                             std::string_view sharing) {
  auto goes_with = tables_for(sharing);
  if (tables.empty()) return goes_with;
  std::erase_if(tables, [&goes_with](const std::string& table) {
    return std::ranges::find(goes_with, table) == goes_with.end();
  });
  return tables;
}

/// Returns the error for a benchmark in which no table goes with any sharing scheme.
inline std::unexpected<Error> none_go_together() {
  return std::unexpected(Error{
      "none of the chosen sharing schemes goes with any of the chosen tables: see docs/sharing.md",
      Error::Kind::usage});
}

}  // namespace millrace::bench
