// A command of a program's command line: a function that does the work and returns the exit status.
#pragma once

#include <functional>

#include "millrace/types.h"

namespace millrace::cli {

/// Exit statuses of a program (cli/README.md, "Exit status").
enum Status : int { kDone = 0, kFailed = 1, kUsage = 2, kUnreadable = 3, kInterrupted = 130 };

/// Runs the chosen command; returns the exit status.
using Run = std::function<int()>;

/// Prints the error on standard error, one line for each problem, and returns its exit status.
int fail(const Error& error);

}  // namespace millrace::cli
