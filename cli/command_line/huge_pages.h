// Advice to the user if tables lie on smaller pages than they could.
#pragma once

#include <cstddef>
#include <string>

#include "millrace/memory.h"

namespace millrace::cli {

/// Bytes from which a table gains from huge pages: the size of one.
constexpr std::size_t kWorthHugePages = std::size_t{2} << 20;

/// Returns a text with the command that reserves huge pages for `bytes` bytes, in addition to the
/// huge pages that are in use. `asked` is the value of --pages.
std::string huge_pages_hint(std::size_t bytes, Pages asked);

}  // namespace millrace::cli
