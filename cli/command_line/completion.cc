// The script completes subcommands, options, names of files, and the values of options that have a
// fixed set of values. It is made from CLI11's description of the command line.
#include "completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "handed_over.h"

namespace millrace::cli {
namespace {

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

/// Returns the values of an option that has a fixed set, separated by spaces; empty for other
/// options. CLI11 describes such a set as TEXT:{one,two}.
std::string choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const auto open = type.find('{');
  const auto close = type.find('}', std::min(open, type.size()));
  if (close == std::string::npos) return {};
  std::string names = type.substr(open + 1, close - open - 1);
  std::ranges::replace(names, ',', ' ');
  return names;
}

/// Calls `use` with each command and its name as it is typed: "bench", "bench path".
void each_command(const CLI::App& app, const std::string& above,
                  const std::function<void(const CLI::App&, const std::string&)>& use) {
  for (const auto* sub : subcommands_of(app)) {
    const std::string name = above + sub->get_name();
    each_command(*sub, name + " ", use);
    use(*sub, name);
  }
}

/// Prints a branch of the shell's `case` for each option of one command whose value is a file, or
/// one of a fixed set.
void print_values(const CLI::App& app, const std::string& command) {
  for (const auto* option : app.get_options()) {
    const bool file = option->get_type_name() == kFile;
    const std::string choices = choices_of(*option);
    if (!file && choices.empty()) continue;
    for (const auto& name : option->get_lnames()) {
      fmt::print("    '{} --{}') ", command, name);
      if (file) {
        fmt::print("COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
      } else {
        fmt::print("choices='{}' ;;\n", choices);
      }
    }
  }
}

std::string words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const auto* sub : subcommands_of(app)) words.push_back(sub->get_name());
  for (auto& option : options_of(app)) words.push_back(std::move(option));
  return fmt::format("{}", fmt::join(words, " "));
}

/// Returns the name of the shell function that completes a program's command line.
std::string function_of(std::string_view program) {
  std::string name = fmt::format("_{}", program);
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Prints the `case` of the shell that calls the shell function of `program` for the commands of
/// `kHandedOver`, if the shell has that function.
void print_handing_over(std::string_view program) {
  std::vector<std::string_view> names;
  for (const auto& command : kHandedOver) names.push_back(command.name);
  fmt::print(
      "  case $command in\n"
      "    {0}) if [ \"$COMP_CWORD\" -gt 1 ] && declare -F {1} >/dev/null; then {1}; return; fi "
      ";;\n"
      "  esac\n",
      fmt::join(names, " | "), function_of(program));
}

void print_bash(const CLI::App& app, const Completion& completion) {
  const std::string function = function_of(completion.program);
  fmt::print(
      "{}() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices\n"
      "  local command=${{COMP_WORDS[1]}}\n",
      function);
  if (!completion.handed_over_to.empty()) print_handing_over(completion.handed_over_to);
  fmt::print(
      "  [ \"$command\" = bench ] && [ \"$COMP_CWORD\" -gt 2 ] && command+=\" "
      "${{COMP_WORDS[2]}}\"\n"
      "  case \"$command $before\" in\n");
  each_command(app, "", print_values);
  fmt::print("    *) case $command in\n");
  each_command(app, "", [](const CLI::App& sub, const std::string& name) {
    fmt::print("      '{}') choices='{}' ;;\n", name, words_of(sub));
  });
  fmt::print(
      "      esac\n"
      "      [ \"$COMP_CWORD\" -eq 1 ] && choices='{}' ;;\n"
      "  esac\n"
      "  local list=${{word%\"${{word##*,}}\"}}  # what stands before the last comma\n"
      "  COMPREPLY=($(compgen -P \"$list\" -W \"$choices\" -- \"${{word##*,}}\"))\n"
      "}}\n"
      "complete -F {} {}\n",
      words_of(app), function, completion.program);
}

}  // namespace

void add_completion(CLI::App& app, Run& run, Completion completion) {
  auto* command = app.add_subcommand("completion", "Print a shell completion script (bash, zsh)");
  const auto shell = std::make_shared<std::string>("bash");
  command->add_option("shell", *shell, "The shell that runs the script")
      ->check(CLI::IsMember({"bash", "zsh"}))
      ->capture_default_str();
  command->footer(fmt::format("\nExample: source <({} completion bash)", completion.program));
  command->callback([&app, &run, shell, completion = std::move(completion)] {
    run = [&app, shell, completion]() -> int {
      if (*shell == "zsh") fmt::print("autoload -U bashcompinit && bashcompinit\n");
      print_bash(app, completion);
      return completion.print_handed_over ? completion.print_handed_over() : kDone;
    };
  });
}

}  // namespace millrace::cli
