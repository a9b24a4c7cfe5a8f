// The commands of `millrace`, one file each. Each function adds its command to `app`; parsing that
// command assigns `run`.
#pragma once

#include <CLI/CLI.hpp>

#include "command_line/command.h"

namespace millrace::cli {

void add_replay(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_schemes(CLI::App& app, Run& run);

}  // namespace millrace::cli
