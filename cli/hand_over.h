// Runs `millrace-bench` for the commands that it has.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// Lists those commands in the help, for completion and in messages.
void add_handed_over(CLI::App& app);

/// True if the command line's command is one of them.
bool is_handed_over(int argc, char** argv);

/// Runs `millrace-bench` with this command line in place of this program: its signals, its exit
/// status and its process id are then that program's own. It is the file of that name beside this
/// program, or else the one that is found in PATH. Returns only if it cannot be run: the exit
/// status, after a line on standard error.
int hand_over(char** argv);

/// Prints the completion of those commands in the same way. Prints nothing where there is no
/// `millrace-bench`.
int print_handed_over_completion();

}  // namespace millrace::cli
