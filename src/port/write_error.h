// What a failed write means to a user: one line that says what would be right.
#pragma once

#include <string>

#include "millrace/types.h"

namespace millrace {

/// `error_number` is errno's. Failed where the place ran out of space or broke; unreadable where
/// `path` cannot be opened for writing.
Error write_error(const std::string& path, int error_number);

}  // namespace millrace
