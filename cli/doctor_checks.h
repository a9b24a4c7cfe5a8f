// Checks of how well a machine is set up for packet processing, and what would be better. They read
// the kernel's files (/proc, /sys, /dev) below a root directory, so that a test can make up a
// machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::cli {

enum class Health : std::uint8_t {
  good,
  better,   ///< millrace works, and could be faster
  missing,  ///< a part of millrace does not work here, or not for this user
};

struct Finding {
  Health health = Health::good;
  std::string subject;  ///< "huge pages"
  std::string is;       ///< the present state
  std::string better;   ///< the reason to change it; empty if `health` is good
  std::string command;  ///< the command that changes it; empty if there is none
};

struct Machine {
  std::filesystem::path root = "/";
  bool is_root = false;  ///< this process runs as root
};

/// Returns the findings, the most important subjects first. Any thread may call this; it takes some
/// milliseconds.
std::vector<Finding> examine(const Machine& machine);

}  // namespace millrace::cli
