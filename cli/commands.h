// The commands of `millrace`. Each is one file, which adds itself to the command line and says what
// runs it.
#pragma once

#include <CLI/CLI.hpp>

#include "command_line/command.h"

namespace millrace::cli {

void add_replay(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_schemes(CLI::App& app, Run& run);

}  // namespace millrace::cli
