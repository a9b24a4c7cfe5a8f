// `millrace bench chain` measures chains of functions: one look-up for all, or one for each.
#include "bench/chain.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ranges>

#include "bench_command.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::ChainOptions;
using bench::ChainReport;
using bench::ChainResult;

struct ChainCommand : BenchCommand {
  ChainOptions options;
  std::vector<std::string> traffic;
  std::vector<std::string> chains;  // names joined by +

  int run();
};

std::string joined(const bench::Functions& functions) {
  return fmt::format("{}", fmt::join(functions, "+"));
}

/// Reads a chain, as "firewall+nat". Errors (usage): an unknown function; fewer than two.
Result<bench::Functions> functions_in(const std::string& chain) {
  bench::Functions functions;
  for (const auto name : std::views::split(chain, '+'))
    functions.emplace_back(name.begin(), name.end());
  const auto known = bench::chainable();
  for (const std::string& name : functions) {
    if (std::ranges::find(known, name) == known.end()) {
      return misused(fmt::format("--chain: {}: \"{}\" is none of {}: join functions by +, as {}",
                                 chain, name, fmt::join(known, ", "), "firewall+nat"));
    }
  }
  if (functions.size() < 2)
    return misused(
        fmt::format("--chain: {} is one function: give two or more, as firewall+nat", chain));
  if (auto ok = each_once("--chain " + chain, functions); !ok) return std::unexpected(ok.error());
  return functions;
}

Json to_json(const ChainResult& r) {
  Json line{{"functions", joined(r.functions)},
            {"classified", r.is_once ? "once" : "each"},
            {"traffic", to_string(r.traffic)},
            {"conversations", r.begun}};
  line.update(spread_json(r.ns));
  if (r.of_dearest) line.update(spread_json("of_dearest", *r.of_dearest, 3));
  if (r.of_each) line.update(spread_json("of_each", *r.of_each, 3));
  return line;
}

Json to_json(const ChainReport& report, const ChainOptions& options) {
  Json all = results_json("chain", report.complete,
                          {{"packets", options.packets},
                           {"conversations", options.conversations},
                           {"burst", options.burst}},
                          options);
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  all["left_out"] = report.left_out;
  return all;
}

std::string ratio_cell(const std::optional<Spread>& of) {
  return of ? fmt::format("{:.2f} ({:.2f}-{:.2f})", of->median, of->min, of->max) : "";
}

void print(const ChainReport& report) {
  fmt::print(
      "ns a packet on one core, median (least-most). once: looked up once for all functions; "
      "each:\n"
      "by each function, one behind the other. of dearest: once, divided by the most expensive\n"
      "function alone; of each: once, divided by each\n"
      "{:<8}{:<32}{:<7}{:>20}{:>20}{:>20}\n",
      "traffic", "functions", "", "ns", "of dearest", "of each");
  for (const auto& r : report.results) {
    const bool is_chain = r.functions.size() > 1;
    fmt::print("{:<8}{:<32}{:<7}{:>20}{:>20}{:>20}\n", to_string(r.traffic), joined(r.functions),
               is_chain ? (r.is_once ? "once" : "each") : "", cell(r.ns), ratio_cell(r.of_dearest),
               ratio_cell(r.of_each));
  }
  for (const auto& why : report.left_out) fmt::print("left out: {}\n", why);
}

int ChainCommand::run() {
  for (const auto& ok : {each_once("--traffic", traffic), each_once("--chain", chains)}) {
    if (!ok) return fail(ok.error());
  }
  if (!traffic.empty()) {
    options.traffic.clear();
    for (const auto& name : traffic) options.traffic.push_back(*bench::talk_named(name));
  }
  for (const auto& chain : chains) {
    auto functions = functions_in(chain);
    if (!functions) return fail(functions.error());
    options.chains.push_back(std::move(*functions));
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  LiveTable live(quiet, Unit::ns);
  const auto report = bench::run_chain(options, live.progress());
  live.clear();
  if (!report) return fail(report.error());
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_chain(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("chain", "Chains of functions: one look-up for all, or one for each");
  const auto chain = std::make_shared<ChainCommand>();
  ChainOptions& options = chain->options;
  command
      ->add_option("--chain", chain->chains,
                   "Chains, their functions joined by +; all that there can be")
      ->delimiter(',')
      ->type_name("NAME+NAME,...");
  add_names(*command, "--traffic", chain->traffic, "http (short connections), campus; both",
            {"http", "campus"});
  add_whole(*command, "--packets", options.packets, "Packets that are timed", 1000, 100'000'000);
  add_whole(*command, "--conversations", options.conversations, "Conversations at once", 1,
            1'000'000);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  chain->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench chain --chain firewall+nat --traffic http");
  command->callback([&run, chain, command] {
    if (chain->quick && command->count("--packets") == 0) chain->options.packets = 20'000;
    if (chain->quick && command->count("--conversations") == 0) chain->options.conversations = 1000;
    if (chain->quick && command->count("--repetitions") == 0) chain->options.repetitions = 1;
    run = [chain] { return chain->run(); };
  });
}

}  // namespace millrace::cli
