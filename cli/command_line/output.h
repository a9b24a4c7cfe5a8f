// Files that the program writes: small text files that appear whole or not at all (`-` is standard
// output), and checks of where output may go. Messages say what would be right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "millrace/types.h"

namespace millrace::cli {

/// Writes text for people to standard error. A failure, as on a closed terminal, is ignored.
void say(const std::string& text);

/// Checks, before long work, that a file can be written at `path`; leaves no file behind. Errors:
/// why it cannot be written (`write_error`).
Result<void> check_writable(const std::string& path);

/// Returns `value` rounded to `digits` decimal places.
double rounded(double value, int digits = 2);

/// Returns JSON as the text of a file. Bytes that are not UTF-8, as names of files may have, are
/// replaced.
std::string to_text(const Json& json);

/// Writes a new file beside `path` and renames it to `path`. A symbolic link stays: the file that
/// it points to is replaced. Writes straight into a device or pipe, and to standard output for `-`.
/// Errors: the file cannot be written.
Result<void> write_whole(const std::string& path, std::string_view text);

/// True if both names are one file, also through links. False for `-`, for an empty name, and for
/// character devices and sockets: /dev/null may be given for several options.
bool same_file(const std::string& a, const std::string& b);

/// True if `path` is `-`, or another name of the file that standard output goes to. False for
/// character devices: /dev/null may be given for several options.
bool is_standard_output(const std::string& path);

/// Checks that `path`, the value of `option`, is not a terminal, since the option writes a capture,
/// which is not text. Errors: usage.
Result<void> check_no_terminal(std::string_view option, const std::string& path);

/// Writes what is buffered for standard output. Errors: failed, if it could not be written.
Result<void> flush_standard_output();

}  // namespace millrace::cli
