// millrace: the command line. Each subcommand is a file of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.h"
#include "common_options.h"
#include "core/edit_distance.h"
#include "output.h"
#include "version.h"

namespace millrace::cli {
namespace {

/// A standard stream that is closed must not become a file that is opened later: what is printed
/// would end up there. What is meant for standard output then counts as lost.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) {
      static_cast<void>(::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY));
    }
  }
}

/// Results that got lost are a failure, unless a failure was reported already. A reader that went
/// away ends the program as usual: SIGPIPE.
int with_output(int status) {
  if (status == kFailed) return status;
  const auto written = flush_standard_output();
  return written ? status : fail(written.error());
}

/// The command that the command line has come to, below those that it stands in.
std::vector<const CLI::App*> chosen_of(const CLI::App& app) {
  std::vector<const CLI::App*> chosen{&app};
  while (!chosen.back()->get_subcommands().empty())
    chosen.push_back(chosen.back()->get_subcommands().front());
  return chosen;
}

/// Returns a message about the first option that the command does not have, with the nearest one
/// that it has; empty if there is no such option. CLI11 says no more than that it is not expected.
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

int run(int argc, char** argv) {
  CLI::App app{"Connection tracking at line rate on ordinary servers.", "millrace"};
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\nTry: millrace replay --in capture.pcap");
  Run chosen;
  add_replay(app, chosen);
  add_run(app, chosen);
  add_generate(app, chosen);
  add_advise(app, chosen);
  add_bench(app, chosen);
  add_schemes(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    // CLI11 names the command that is missing, not the word in its place.
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
  } catch (const std::system_error& failure) {  // fmt's, when standard output takes no more
    say(fmt::format("millrace: standard output: {}\n", failure.code().message()));
    return kFailed;
  } catch (const std::exception& failure) {
    say(fmt::format("millrace: {}\n", failure.what()));
    return kFailed;
  }
}

}  // namespace
}  // namespace millrace::cli

int main(int argc, char** argv) {
  using namespace millrace::cli;
  hold_standard_streams();
  return with_output(run(argc, argv));
}
