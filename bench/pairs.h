// Which tables and sharing schemes stand together in a benchmark.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "line/line.h"
#include "millrace/types.h"

namespace millrace::bench {

/// Those of the tables, of all where none is named, that go with the sharing scheme of that name.
inline std::vector<std::string> tables_among(std::vector<std::string> tables,
                                             std::string_view sharing) {
  auto goes_with = tables_for(sharing);
  if (tables.empty()) return goes_with;
  std::erase_if(tables, [&goes_with](const std::string& table) {
    return std::ranges::find(goes_with, table) == goes_with.end();
  });
  return tables;
}

inline std::unexpected<Error> none_go_together() {
  return std::unexpected(
      Error{"none of these sharing schemes goes with any of these tables: see docs/sharing.md",
            Error::Kind::usage});
}

}  // namespace millrace::bench
