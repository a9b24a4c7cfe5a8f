// `completion`, the command that prints a shell script which completes the program's command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string_view>

#include "command.h"

namespace millrace::cli {

struct Completion {
  std::string_view program;  ///< name of the program that the script completes
  /// Name of another program, which runs the commands of `kHandedOver` and completes them by a
  /// script of its own. Empty: `program` runs all its commands itself.
  std::string_view handed_over_to;
  /// Prints the script of `handed_over_to`, after the script of `program` was printed, and returns
  /// the exit status. Empty: only the script of `program` is printed.
  std::function<int()> print_handed_over;
};

/// Adds the command `completion` to `app`; its script completes all commands and options that `app`
/// has when the script is printed. `app` and `run` must outlive the parsing of the command line and
/// the run of the command.
void add_completion(CLI::App& app, Run& run, Completion completion);

}  // namespace millrace::cli
