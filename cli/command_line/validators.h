// Checks of single values on the command line. What they say of a wrong one names what is right.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::cli {

/// For names of files: an empty one is a mistake, of an unset variable most often.
CLI::Validator not_empty();

/// For unsigned numbers of 64 bits: CLI11 would take -5 as 2^64 - 5, and what is more as 2^64 - 1.
CLI::Validator not_negative();

/// Both ends included.
CLI::Validator whole_number(std::uint64_t from, std::uint64_t to);
CLI::Validator number(double from, double to);

/// The help and the shell's completion show the names.
CLI::Validator one_of(std::vector<std::string> names);

}  // namespace millrace::cli
