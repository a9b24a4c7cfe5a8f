// Lines for the table at one place of the list; each is compiled by itself.
#pragma once

#include <cstddef>
#include <span>

#include "line/line.h"

namespace millrace {

/// As `make_lines`, whose `config` names the table at that place and has been checked.
template <std::size_t place>
Result<Lines> make_lines_of_table(const LineConfig& config, MakeAgeing& ageing,
                                  std::span<Function* const> functions);

}  // namespace millrace
