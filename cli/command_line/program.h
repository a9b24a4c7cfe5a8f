// The code around a program's command: it handles closed standard streams, mistakes on the command
// line, failures, and output that cannot be written.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace millrace::cli {

/// Opens /dev/null for each standard stream that is closed, so that no file gets the descriptor of
/// a closed stream, and with it the text that is printed to the stream. To be called before any
/// file is opened. Writing to a closed standard output stays an error.
void hold_standard_streams();

/// Parses the command line, runs the command that parsing has put into `chosen`, and flushes
/// standard output. Returns the exit status; a failure is printed on standard error, a line for
/// each problem.
int run_program(CLI::App& app, const Run& chosen, int argc, char** argv);

}  // namespace millrace::cli
