// `completion`, the command that prints a script by which the shell completes a program's command
// line.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace millrace::cli {

/// Adds it to `app`, whose commands and options the script knows. Refers to both.
void add_completion(CLI::App& app, Run& run);

}  // namespace millrace::cli
