// `completion`, the command that prints a script by which the shell completes a program's command
// line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string_view>

#include "command.h"

namespace millrace::cli {

/// The script of one program.
struct Completion {
  std::string_view program;
  /// Another program, whose script completes the commands of `kHandedOver`; empty: there is none.
  std::string_view handed_over_to;
  /// Prints that other script, behind this one.
  std::function<int()> print_handed_over;
};

/// Adds it to `app`, whose commands and options the script knows. Refers to both.
void add_completion(CLI::App& app, Run& run, Completion completion);

}  // namespace millrace::cli
