// Checks of single values on the command line. The message about a wrong value says which values
// are right.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::cli {

/// Refuses an empty name of a file, which most often comes from an unset shell variable.
CLI::Validator not_empty();

/// Accepts whole numbers from 0 to 2^64 - 1. CLI11 alone would take -5 as 2^64 - 5, and larger
/// numbers as 2^64 - 1.
CLI::Validator not_negative();

/// Accepts whole numbers from `from` to `to`, both included.
CLI::Validator whole_number(std::uint64_t from, std::uint64_t to);
/// Accepts numbers from `from` to `to`, both included.
CLI::Validator number(double from, double to);

/// Accepts only the given names. The help and the shell's completion show them.
CLI::Validator one_of(std::vector<std::string> names);

}  // namespace millrace::cli
