#include "program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/edit_distance.h"
#include "output.h"

namespace millrace::cli {
namespace {

/// Flushes standard output and returns the exit status: `status`, or a failure if output was lost
/// and no failure was reported before. If the reader of a pipe has gone away, SIGPIPE ends the
/// program.
int with_output(int status) {
  if (status == kFailed) return status;
  const auto written = flush_standard_output();
  return written ? status : fail(written.error());
}

/// Returns the program and the parsed subcommands, from the outermost to the innermost.
std::vector<const CLI::App*> chosen_of(const CLI::App& app) {
  std::vector<const CLI::App*> chosen{&app};
  while (!chosen.back()->get_subcommands().empty())
    chosen.push_back(chosen.back()->get_subcommands().front());
  return chosen;
}

/// Returns a message about the first option that the command does not have, with the nearest option
/// that it has; empty if all options are known. CLI11 says only that the option is not expected.
std::string unknown_option(const CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    if (!word.starts_with('-')) continue;
    std::string nearest;
    std::size_t least = word.size();
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const std::size_t distance = edit_distance(word.substr(0, word.find('=')), "--" + name);
        if (distance >= least) continue;
        least = distance;
        nearest = "--" + name;
      }
    }
    return word + " is no option" + (nearest.empty() ? "" : ": the nearest is " + nearest);
  }
  return {};
}

std::string names_of(const std::vector<const CLI::App*>& commands, std::string_view between) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, between));
}

int run(CLI::App& app, const Run& chosen, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    // CLI11 would name the missing command, not the unknown word in its place.
    const auto reached = chosen_of(app);
    const std::string name = names_of(reached, " ");
    const auto commands = reached.back()->get_subcommands([](const CLI::App*) { return true; });
    const auto next = static_cast<int>(reached.size());
    if (!commands.empty() && argc > next && argv[next][0] != '-') {
      say(fmt::format("millrace: {} is no command of {}: give {}\n", argv[next], name,
                      names_of(commands, ", ")));
      return kUsage;
    }
    const std::string unknown = unknown_option(*reached.back());
    say(fmt::format("millrace: {} ({} --help shows what there is)\n",
                    unknown.empty() ? wrong.what() : unknown, name));
    return kUsage;
  } catch (const std::bad_alloc&) {
    say("millrace: no memory left: free some, or ask for less\n");
    return kFailed;
  } catch (const std::system_error& failure) {  // from fmt, if standard output cannot be written
    say(fmt::format("millrace: standard output: {}\n", failure.code().message()));
    return kFailed;
  } catch (const std::exception& failure) {
    say(fmt::format("millrace: {}\n", failure.what()));
    return kFailed;
  }
}

}  // namespace

void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) {
      static_cast<void>(::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY));
    }
  }
}

int fail(const Error& error) {
  std::string_view left = error.message;
  while (!left.empty()) {
    const auto end = std::min(left.find('\n'), left.size());
    say(fmt::format("millrace: {}\n", left.substr(0, end)));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return static_cast<int>(error.kind);
}

int run_program(CLI::App& app, const Run& chosen, int argc, char** argv) {
  return with_output(run(app, chosen, argc, argv));
}

}  // namespace millrace::cli
