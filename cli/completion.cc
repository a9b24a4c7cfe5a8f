// `millrace completion`: a script that lets the shell complete subcommands, options and the values
// of options that have a fixed set of them, made from the command line's own description.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace millrace::cli {
namespace {

using Values = std::map<std::string, std::string>;

constexpr std::string_view kFile = "FILE";

auto subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// The names of a fixed set, which CLI11 describes as TEXT:{one,two}; nothing for other options.
std::string choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const auto open = type.find('{');
  const auto close = type.find('}', std::min(open, type.size()));
  if (close == std::string::npos) return {};
  std::string names = type.substr(open + 1, close - open - 1);
  std::ranges::replace(names, ',', ' ');
  return names;
}

/// What the options of `app` and below take: names, or `kFile`.
void note_values(const CLI::App& app, Values& values) {
  for (const auto* option : app.get_options()) {
    const bool file = option->get_type_name() == kFile;
    const std::string choices = file ? std::string(kFile) : choices_of(*option);
    if (choices.empty()) continue;
    for (const auto& name : option->get_lnames()) values["--" + name] = choices;
  }
  for (const auto* sub : subcommands_of(app)) note_values(*sub, values);
}

void print_values(const CLI::App& app) {
  Values values;
  note_values(app, values);
  for (const auto& [option, choices] : values) {
    if (choices == kFile) {
      fmt::print("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", option);
    } else {
      fmt::print("    {}) choices='{}' ;;\n", option, choices);
    }
  }
}

void print_bash(const CLI::App& app) {
  fmt::print(
      "# millrace completion bash; in zsh after `autoload -U bashcompinit; bashcompinit`\n"
      "_millrace() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices\n"
      "  case $before in\n");
  print_values(app);
  fmt::print("    *) case ${{COMP_WORDS[1]}} in\n");
  std::vector<std::string> commands;
  for (const auto* sub : subcommands_of(app)) {
    commands.push_back(sub->get_name());
    auto words = options_of(*sub);
    for (const auto* inner : subcommands_of(*sub)) {
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
