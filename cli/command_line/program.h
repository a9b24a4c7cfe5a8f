// The frame of a program around its commands: standard streams, mistakes on the command line,
// failures, and output that could not be written.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace millrace::cli {

/// Opens /dev/null for each standard stream that is closed; to be called first. Otherwise a file
/// that is opened later would get the stream's number, and the printed text. Writing to a closed
/// standard output stays an error.
void hold_standard_streams();

/// Parses the command line, runs the command that parsing has put into `chosen`, and flushes
/// standard output. Returns the exit status; a failure is printed on standard error, a line for
/// each problem.
int run_program(CLI::App& app, const Run& chosen, int argc, char** argv);

}  // namespace millrace::cli
