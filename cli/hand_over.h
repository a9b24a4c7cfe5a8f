// Runs `millrace-bench` for the commands of `kHandedOver` (command_line/handed_over.h).
#pragma once

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// Adds the commands of `kHandedOver` to `app`, so that help, completion and messages list them.
void add_handed_over(CLI::App& app);

/// True if `millrace-bench` runs the command on this command line.
bool is_handed_over(int argc, char** argv);

/// Replaces this process by `millrace-bench` with the same command line (execve): from then on that
/// program handles signals and gives the exit status; the process id stays. Runs the file of that
/// name beside this program, or else the first one in PATH. Returns only if `millrace-bench` cannot
/// be run: prints why, and returns the exit status.
int hand_over(char** argv);

/// Replaces this process by `millrace-bench completion`, which prints the script for the commands
/// of `kHandedOver`. Returns only if that failed: `kDone`, without printing anything, if
/// `millrace-bench` cannot be run; a failure if earlier output could not be written.
int print_handed_over_completion();

}  // namespace millrace::cli
