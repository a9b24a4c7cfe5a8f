// Makes the lines for one table of the list `TableSchemes`. Each table is compiled by itself.
#pragma once

#include <cstddef>
#include <span>

#include "line/line.h"

namespace millrace {

/// Makes lines as `make_lines` does. `config` must have been checked, and must name the table at
/// `place` in the list. Errors: as `make_lines`.
template <std::size_t place>
Result<Lines> make_lines_of_table(const LineConfig& config, MakeAgeing& ageing,
                                  std::span<Function* const> functions);

}  // namespace millrace
