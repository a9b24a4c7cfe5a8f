#include "hand_over.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "command_line/command.h"
#include "command_line/handed_over.h"
#include "command_line/output.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

/// A program that could not be run, and why.
struct NotRun {
  std::string program;
  int error = 0;  ///< an `errno`
};

/// Replaces this process by `millrace-bench`. Returns only if that failed.
NotRun become_bench(char** argv) {
  const std::string name(kBenchProgram);
  std::error_code unknown;
  const fs::path self = fs::read_symlink("/proc/self/exe", unknown);
  const fs::path beside = self.parent_path() / name;
  if (!unknown && ::access(beside.c_str(), F_OK) == 0) {
    ::execv(beside.c_str(), argv);
    return {beside, errno};
  }
  ::execvp(name.c_str(), argv);
  return {name, errno};
}

}  // namespace

void add_handed_over(CLI::App& app) {
  for (const auto& [name, what] : kHandedOver) {
    app.add_subcommand(std::string(name), std::string(what))->set_help_flag();
  }
}

bool is_handed_over(int argc, char** argv) {
  return argc > 1 && std::ranges::find(kHandedOver, std::string_view(argv[1]),
                                       &NamedCommand::name) != kHandedOver.end();
}

int hand_over(char** argv) {
  const auto [program, error] = become_bench(argv);
  if (error == ENOENT) {
    say(fmt::format(
        "millrace: {} needs the program {}, which is neither beside millrace nor in PATH: "
        "build it (MILLRACE_BENCH=ON) and install it\n",
        argv[1], kBenchProgram));
  } else {
    say(fmt::format("millrace: {}: {}\n", program, std::strerror(error)));
  }
  return kUnreadable;
}

int print_handed_over_completion() {
  if (auto written = flush_standard_output(); !written) return fail(written.error());
  std::string name(kBenchProgram);
  std::string command = "completion";
  std::array<char*, 3> arguments{name.data(), command.data(), nullptr};
  become_bench(arguments.data());
  return kDone;
}

}  // namespace millrace::cli
