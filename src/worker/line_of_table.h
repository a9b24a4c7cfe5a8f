// A line for the table at one place of the list; each is compiled by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/line.h"

namespace millrace {

/// As `make_line`, whose `config.table` is the table at that place.
template <std::size_t place>
Result<std::unique_ptr<Line>> make_line_of_table(const LineConfig& config, Function& function);

/// What an unknown name on one axis is answered.
Error unknown_scheme(std::string_view axis, std::string_view name,
                     const std::vector<std::string>& known);

}  // namespace millrace
