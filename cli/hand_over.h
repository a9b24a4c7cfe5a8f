// Runs `millrace-bench` for the commands that it has.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// Adds those commands to `app`, so that help, completion and messages list them.
void add_handed_over(CLI::App& app);

/// True if `millrace-bench` runs the command on this command line.
bool is_handed_over(int argc, char** argv);

/// Replaces this process by `millrace-bench` with the same command line (execve): signals and exit
/// status are that program's from then on, and the process id stays. Runs the file of that name
/// beside this program, or else the first in PATH. Returns only if it cannot be run: the exit
/// status, after a line on standard error.
int hand_over(char** argv);

/// Replaces this process by `millrace-bench completion`, which prints the script for those
/// commands. Returns the exit status: `kDone` without printing anything if there is no
/// `millrace-bench`, a failure if earlier output could not be written.
int print_handed_over_completion();

}  // namespace millrace::cli
