// What a command of a program's command line gives: a function to run, whose result is the exit
// status.
#pragma once

#include <functional>

#include "millrace/types.h"

namespace millrace::cli {

/// Exit status of a program: README.md beside this folder, "Exit status".
enum Status : int { kDone = 0, kFailed = 1, kUsage = 2, kUnreadable = 3, kInterrupted = 130 };

/// Does what the chosen command is for; returns the exit status.
using Run = std::function<int()>;

/// Prints the error, a line a problem, and returns its exit status.
int fail(const Error& error);

}  // namespace millrace::cli
