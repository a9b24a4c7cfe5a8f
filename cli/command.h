// A subcommand is one file: it adds itself to the command line, and says what runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace millrace::cli {

/// Exit status of the program: DESIGN, "Command line and files".
enum Status : int { kDone = 0, kFailed = 1, kUsage = 2, kUnreadable = 3, kInterrupted = 130 };

/// What the chosen subcommand does; returns the exit status.
using Run = std::function<int()>;

void add_replay(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_advise(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_schemes(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);

}  // namespace millrace::cli
