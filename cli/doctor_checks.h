// What a machine is like for packet processing, and what would be better. Reads files of the
// kernel's below a root, so that a test can make up a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::cli {

enum class Health : std::uint8_t {
  good,
  better,   ///< works, and could work better
  missing,  ///< something does not work without it
};

struct Finding {
  Health health = Health::good;
  std::string subject;  ///< "huge pages"
  std::string is;       ///< what is
  std::string better;   ///< what would be, and why; empty where it is good
  std::string command;  ///< by which; empty where none does it
};

struct Machine {
  std::filesystem::path root = "/";
  bool is_root = false;  ///< this process may do everything
};

/// In the order in which they matter; any thread, some milliseconds.
std::vector<Finding> examine(const Machine& machine);

}  // namespace millrace::cli
