// Files that the program writes: small text files that appear whole or not at all (`-` is standard
// output), and what may not be written to. Messages say what would be right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "millrace/types.h"

namespace millrace::cli {

/// Text for people, to standard error. That it may be gone (a closed terminal) ends nothing.
void say(const std::string& text);

/// Checks, before long work, that a file could be created at `path`; leaves nothing there.
Result<void> check_writable(const std::string& path);

/// To that many decimal places, as results are written.
double rounded(double value, int digits = 2);

/// JSON for a file. Names of files may hold any bytes: what is no UTF-8 is replaced.
std::string to_text(const Json& json);

/// Writes beside the file, then renames. A symbolic link stays, what it points to is replaced.
Result<void> write_whole(const std::string& path, std::string_view text);

/// Whether both names lead to one file, by way of links too. Devices such as /dev/null may serve
/// several purposes and are never the same. `-` is no file.
bool same_file(const std::string& a, const std::string& b);

/// True where `path` is `-`, or another name of what standard output goes to. No device is, as
/// /dev/null may serve several purposes.
bool is_standard_output(const std::string& path);

/// Refuses a terminal as the file of `option`, which gets bytes that are no text. Error (usage).
Result<void> check_no_terminal(std::string_view option, const std::string& path);

/// Whatever waits for standard output, out. Error (failed): it could not be written.
Result<void> flush_standard_output();

}  // namespace millrace::cli
