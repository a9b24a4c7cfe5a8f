// Lines for the table at one place of the list; each is compiled by itself.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/line.h"

namespace millrace {

/// As `make_lines`, whose `config.table` is the table at that place.
template <std::size_t place>
Result<Lines> make_lines_of_table(const LineConfig& config, std::span<Function* const> functions);

/// What an unknown name on one axis is answered.
Error unknown_scheme(std::string_view axis, std::string_view name,
                     const std::vector<std::string>& known);

}  // namespace millrace
