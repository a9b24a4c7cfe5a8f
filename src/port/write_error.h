// Error messages for failed writes: one line that says what is wrong and what would be right.
#pragma once

#include <string>

#include "millrace/types.h"

namespace millrace {

/// Returns the error for a write to `path` that failed with the errno `error_number`: failed if
/// space ran out or the device broke, else unreadable.
Error write_error(const std::string& path, int error_number);

}  // namespace millrace
