// `millrace bench rules` measures what it costs to find a connection's rule among many.
#include "bench/rules.h"

#include <memory>

#include "bench_command.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::RulesOptions;
using bench::RulesResult;

struct RulesCommand : BenchCommand {
  RulesOptions options;
  std::vector<std::string> mixes;

  int run();
};

Json to_json(const RulesResult& result) {
  Json line{{"mix", to_string(result.mix)},
            {"family", result.family},
            {"rules", result.rules},
            {"memory_bytes", result.memory_bytes}};
  line.update(spread_json("build_ms", result.build_ms));
  line.update(spread_json("random_ns", result.random_ns));
  line.update(spread_json("derived_ns", result.derived_ns));
  return line;
}

void print(const std::vector<RulesResult>& results) {
  fmt::print(
      "build: making the classifier; random, from rules: ns to find the rule of a packet with\n"
      "random addresses, or drawn from a rule; median (least-most)\n"
      "{:<10}{:>6}{:>8}{:>10}{:>22}{:>22}{:>22}\n",
      "mix", "family", "rules", "MiB", "build ms", "random", "from rules");
  for (const auto& r : results) {
    fmt::print("{:<10}{:>6}{:>8}{:>10.2f}{:>22}{:>22}{:>22}\n", to_string(r.mix),
               fmt::format("IPv{}", r.family), r.rules,
               static_cast<double>(r.memory_bytes) / (1 << 20), cell(r.build_ms), cell(r.random_ns),
               cell(r.derived_ns));
  }
}

int RulesCommand::run() {
  for (const auto& ok : {each_once("--rules", options.rules), each_once("--mix", mixes)}) {
    if (!ok) return fail(ok.error());
  }
  if (!mixes.empty()) {
    options.mixes.clear();
    for (const auto& name : mixes) options.mixes.push_back(*rule_mix_named(name));
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  LiveTable live(quiet, Unit::ns);
  const auto results = bench::run_rules(options, live.progress());
  live.clear();
  if (!results) return fail(results.error());
  const std::size_t asked = 2 * options.mixes.size() * options.rules.size();
  const bool complete = results->size() == asked;
  if (!complete) {
    warn(fmt::format("interrupted after {} of {} measurements", results->size(), asked));
    if (results->empty()) return kInterrupted;
  }
  Json all = results_json("rules", complete,
                          {{"packets", options.packets}, {"compared", options.compared}}, options);
  for (const auto& result : *results) all["results"].push_back(to_json(result));
  return finish(complete, all, [&] { print(*results); });
}

}  // namespace

void add_bench_rules(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("rules", "Finding the firewall's rule for a new connection");
  const auto rules = std::make_shared<RulesCommand>();
  add_names(*command, "--mix", rules->mixes, "acl, firewall, ipc, as ClassBench's; all",
            {"acl", "firewall", "ipc"})
      ->type_name("NAME,...");
  add_whole(*command, "--rules", rules->options.rules, "Rules; 1000, 10000 and 50000", 1, 65'000);
  add_whole(*command, "--packets", rules->options.packets, "Packets of each kind", 1, 100'000'000);
  add_whole(*command, "--compare", rules->options.compared,
            "Packets of each kind that are compared with a linear search", 0, 100'000'000);
  rules->add_to(*command, rules->options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench rules --rules 10000 --compare 1000000");
  command->callback([&run, rules, command] {
    if (rules->quick && command->count("--rules") == 0) rules->options.rules = {1000};
    if (rules->quick && command->count("--packets") == 0) rules->options.packets = 10'000;
    if (rules->quick && command->count("--compare") == 0) rules->options.compared = 1000;
    run = [rules] { return rules->run(); };
  });
}

}  // namespace millrace::cli
