// `millrace completion`: a script that lets the shell complete subcommands, options and the values
// of options that have a fixed set of them, made from the command line's own description.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "command.h"
#include "conntrack/schemes.h"

namespace millrace::cli {
namespace {

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void print_bash(const CLI::App& app) {
  fmt::print(
      "# millrace completion bash; in zsh after `autoload -U bashcompinit; bashcompinit`\n"
      "_millrace() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices\n"
      "  case $before in\n"
      "    --table) choices='{}' ;;\n"
      "    --sharing) choices='{}' ;;\n"
      "    --ageing) choices='{}' ;;\n"
      "    --clock) choices='capture wall' ;;\n"
      "    --pages) choices='huge transparent small' ;;\n"
      "    --profile) choices='campus uniform flood' ;;\n"
      "    --in|--out|--config|--stats|--json) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
      "    *) case ${{COMP_WORDS[1]}} in\n",
      fmt::join(TableSchemes::names(), " "), fmt::join(SharingSchemes::names(), " "),
      fmt::join(AgeingSchemes::names(), " "));
  std::vector<std::string> commands;
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
    auto words = options_of(*sub);
    for (const auto* inner : sub->get_subcommands([](const CLI::App*) { return true; })) {
      words.push_back(inner->get_name());
      for (const auto& option : options_of(*inner)) words.push_back(option);
    }
    fmt::print("      {}) choices='{}' ;;\n", sub->get_name(), fmt::join(words, " "));
  }
  fmt::print(
      "      esac\n"
      "      [ \"$COMP_CWORD\" -eq 1 ] && choices='{} --help --version' ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$choices\" -- \"$word\"))\n"
      "}}\n"
      "complete -F _millrace millrace\n",
      fmt::join(commands, " "));
}

}  // namespace

void add_completion(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("completion", "Print a shell completion script (bash, zsh)");
  command->footer("\nExample: source <(millrace completion)");
  command->callback([&app, &run] {
    run = [&app] {
      print_bash(app);
      return kDone;
    };
  });
}

}  // namespace millrace::cli
