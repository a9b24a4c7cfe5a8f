// `millrace bench path` measures the time of a packet from receive to send, and of each stage.
#include <algorithm>
#include <memory>

#include "bench/path.h"
#include "bench_command.h"
#include "config/config.h"
#include "conntrack/schemes.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::PathOptions;
using bench::PathResult;

struct PathCommand : BenchCommand {
  PathOptions options;
  std::vector<std::string> traffic;
  std::string config;

  int run();
};

Json to_json(const PathResult& result) {
  Json stages = Json::object();
  for (const auto& [name, spread] : result.stages) stages[std::string(name)] = spread_json(spread);
  return {{"traffic", to_string(result.traffic)},
          {"live", result.live},
          {"packets", result.packets},
          {"pages", to_string(result.pages)},
          {"parse", spread_json(result.parse)},
          {"parse_and_touch", spread_json(result.touch)},
          {"stateless", spread_json(result.stateless)},
          {"whole", spread_json(result.whole)},
          {"stages", std::move(stages)}};
}

void print_stages(const std::vector<PathResult>& results) {
  fmt::print("\nthe whole way by stage (reads of the clock included)\n{:<9}{:>10}", "traffic",
             "live");
  for (const auto& [name, spread] : results.front().stages) fmt::print("{:>10}", name);
  fmt::print("\n");
  for (const auto& r : results) {
    fmt::print("{:<9}{:>10}", to_string(r.traffic), r.live);
    for (const auto& [name, spread] : r.stages) fmt::print("{:>10.1f}", spread.median);
    fmt::print("\n");
  }
}

void print(const std::vector<PathResult>& results, const std::string& table) {
  fmt::print("ns a packet on one core, {}: median (least-most)\n", table);
  fmt::print("{:<9}{:>10}  {:<12}{:<20}{:<20}{:<20}{:<20}{:>14}{:>14}\n", "traffic", "live",
             "pages", "parse", "parse + touch", "stateless", "whole way", "whole/touch",
             "above parse");
  for (const auto& r : results) {
    fmt::print("{:<9}{:>10}  {:<12}{:<20}{:<20}{:<20}{:<20}{:>14.2f}{:>11.1f} ns\n",
               to_string(r.traffic), r.live, to_string(r.pages), cell(r.parse), cell(r.touch),
               cell(r.stateless), cell(r.whole), r.whole.median / r.touch.median,
               r.whole.median - r.parse.median);
  }
  if (results.front().stages.empty()) {
    fmt::print("\nstages: measured only for the tables race and chained\n");
  } else {
    print_stages(results);
  }
}

int PathCommand::run() {
  for (const auto& ok : {each_once("--live", options.live), each_once("--traffic", traffic)}) {
    if (!ok) return fail(ok.error());
  }
  if (!traffic.empty()) {
    options.traffic.clear();
    for (const auto& name : traffic) options.traffic.push_back(*profile_named(name));
  }
  if (!config.empty()) {
    const auto read = read_config(
        config, {TableSchemes::names(), SharingSchemes::names(), AgeingSchemes::names()});
    if (!read) return fail(read.error());
    options.function = read->function;
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  LiveTable live(quiet, Unit::ns);
  const auto results = bench::run_path(options, live.progress());
  live.clear();
  if (!results) return fail(in_terms_of("--live", results.error()));
  const std::size_t asked = options.traffic.size() * options.live.size();
  const bool complete = results->size() == asked;
  if (!complete) {
    warn(fmt::format("interrupted after {} of {} measurements", results->size(), asked));
    if (results->empty()) return kInterrupted;
  }
  Json all =
      results_json("path", complete, {{"table", options.table}, {"burst", options.burst}}, options);
  for (const auto& result : *results) all["results"].push_back(to_json(result));
  return finish(complete, all, [&] { print(*results, options.table); });
}

}  // namespace

void add_bench_path(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("path", "Time of a packet from receive to send, beside parsing alone");
  const auto path = std::make_shared<PathCommand>();
  add_whole(*command, "--live", path->options.live, "Connections; 786432 and 3145728", 1,
            100'000'000);
  add_names(*command, "--traffic", path->traffic, "uniform, campus; both", {"uniform", "campus"})
      ->type_name("NAME,...");
  command
      ->add_option("--table", path->options.table,
                   "Connection table; stages are measured for race and chained only")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  command
      ->add_option("--config", path->config,
                   "Configuration whose functions serve the packets; they must track each of them, "
                   "also those in mid-connection; the default balances everything")
      ->type_name("FILE");
  add_whole(*command, "--burst", path->options.burst, "Packets a burst", 1, 64);
  path->add_to(*command, path->options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench path --live 786432 --json path.json");
  command->callback([&run, path, command] {
    if (path->quick && command->count("--live") == 0) path->options.live = {50'000};
    run = [path] { return path->run(); };
  });
}

}  // namespace millrace::cli
