// What to say to a user whose tables got smaller pages than they could have.
#pragma once

#include <cstddef>
#include <string>

#include "millrace/memory.h"

namespace millrace::cli {

/// Tables of fewer bytes gain nothing from huge pages.
constexpr std::size_t kWorthHugePages = std::size_t{2} << 20;

/// How to get huge pages for so many more bytes, beside those that others use.
std::string huge_pages_hint(std::size_t bytes, Pages asked);

}  // namespace millrace::cli
