// What a program does around its commands: standard streams, mistakes on the command line,
// failures, and output that gets lost.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace millrace::cli {

/// To be called first. A standard stream that is closed must not become a file that is opened
/// later: what is printed would end up there. What is meant for standard output then counts as
/// lost.
void hold_standard_streams();

/// Parses the command line, runs what it has put into `chosen`, and writes what still waits for
/// standard output. Returns the exit status; a failure is one line on standard error.
int run_program(CLI::App& app, const Run& chosen, int argc, char** argv);

}  // namespace millrace::cli
