// Small text files that appear whole or not at all; `-` is standard output.
#pragma once

#include <string>
#include <string_view>

#include "millrace/types.h"

namespace millrace::cli {

/// Checks, before long work, that `write_whole` could create `path`.
Result<void> check_writable(const std::string& path);

/// Writes beside the file, then renames.
Result<void> write_whole(const std::string& path, std::string_view text);

}  // namespace millrace::cli
