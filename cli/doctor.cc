// `millrace doctor`: prints how well this machine is set up for packet processing.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "command_line/output.h"
#include "command_line/validators.h"
#include "commands.h"
#include "core/json.h"
#include "doctor_checks.h"

namespace millrace::cli {
namespace {

std::string_view word_for(Health health) {
  switch (health) {
    case Health::good:
      return "good";
    case Health::better:
      return "better";
    case Health::missing:
      return "missing";
  }
  return "";
}

Json to_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"health", word_for(finding.health)},
                    {"subject", finding.subject},
                    {"is", finding.is},
                    {"better", finding.better},
                    {"command", finding.command}});
  }
  return list;
}

void print(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    fmt::print("{:<9}{:<19}{}\n", word_for(finding.health), finding.subject, finding.is);
    if (!finding.better.empty()) fmt::print("{:28}{}\n", "", finding.better);
    if (!finding.command.empty()) fmt::print("{:28}> {}\n", "", finding.command);
  }
}

int run(const std::string& json) {
  const auto findings = examine({.is_root = ::geteuid() == 0});
  if (!json.empty()) {
    if (auto ok = write_whole(json, to_text(to_json(findings))); !ok) return fail(ok.error());
  }
  if (json != "-") print(findings);
  return kDone;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run_it) {
  auto* command = app.add_subcommand("doctor", "Say what this machine lacks to run well");
  const auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "Write the findings as JSON; - in place of the list")
      ->check(not_empty())
      ->type_name("FILE");
  command->footer("\nExample: millrace doctor");
  command->callback([&run_it, json] { run_it = [json] { return run(*json); }; });
}

}  // namespace millrace::cli
