// `millrace bench path`: a packet's whole way, and where the time goes.
#include <algorithm>
#include <memory>

#include "bench/machine.h"
#include "bench/path.h"
#include "bench_command.h"
#include "common_options.h"
#include "interrupt.h"
#include "output.h"
#include "validators.h"

namespace millrace::cli {
namespace {

using bench::PathOptions;
using bench::PathResult;

struct PathCommand : BenchCommand {
  PathOptions options;
  std::vector<std::string> traffic;

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
          {"whole", spread_json(result.whole)},
          {"stages", std::move(stages)}};
}

void print(const std::vector<PathResult>& results) {
  fmt::print("ns a packet on one core: median (least-most)\n");
  fmt::print("{:<9}{:>10}  {:<12}{:<20}{:<20}{:<20}{:>14}{:>14}\n", "traffic", "live", "pages",
             "parse", "parse + touch", "whole way", "whole/touch", "above parse");
  for (const auto& r : results) {
    fmt::print("{:<9}{:>10}  {:<12}{:<20}{:<20}{:<20}{:>14.2f}{:>11.1f} ns\n", to_string(r.traffic),
               r.live, to_string(r.pages), cell(r.parse), cell(r.touch), cell(r.whole),
               r.whole.median / r.touch.median, r.whole.median - r.parse.median);
  }
  fmt::print("\nthe whole way by stage (with the clock's reads)\n{:<9}{:>10}", "traffic", "live");
  for (const auto& [name, spread] : results.front().stages) fmt::print("{:>10}", name);
  fmt::print("\n");
  for (const auto& r : results) {
    fmt::print("{:<9}{:>10}", to_string(r.traffic), r.live);
    for (const auto& [name, spread] : r.stages) fmt::print("{:>10.1f}", spread.median);
    fmt::print("\n");
  }
}

int PathCommand::run() {
  options.pages = pages_named(pages).value_or(Pages::huge);
  if (!traffic.empty()) {
    options.traffic.clear();
    for (const auto& name : traffic) options.traffic.push_back(*profile_named(name));
  }
  if (quick) options.live = {50'000};
  if (auto ok = check_json(); !ok) return fail(ok.error());
  catch_interrupts();
  const auto results = bench::run_path(options, progress_line(quiet));
  progress_line(quiet)("");
  if (!results) return fail(in_terms_of("--live", results.error()));
  const std::size_t asked = options.traffic.size() * options.live.size();
  const bool complete = results->size() == asked;
  if (!complete) {
    say(fmt::format("millrace: warning: interrupted after {} of {} measurements\n", results->size(),
                    asked));
    if (results->empty()) return kInterrupted;
  }
  if (!json.empty()) {
    Json all{{"suite", "path"},
             {"complete", complete},
             {"options",
              {{"repetitions", options.repetitions},
               {"burst", options.burst},
               {"seed", options.seed},
               {"pages", pages}}},
             {"machine", bench::describe_machine()},
             {"results", Json::array()}};
    for (const auto& result : *results) all["results"].push_back(to_json(result));
    if (auto ok = write_whole(json, to_text(all)); !ok) return fail(ok.error());
  }
  if (json != "-") print(*results);
  return complete ? kDone : kInterrupted;
}

}  // namespace

void add_bench_path(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("path", "A packet's whole way, beside parsing and a bare touch");
  const auto path = std::make_shared<PathCommand>();
  command->add_option("--live", path->options.live, "Connections; 786432 and 3145728")
      ->delimiter(',')
      ->check(whole_number(1, 100'000'000))
      ->type_name("N,...");
  command->add_option("--traffic", path->traffic, "uniform, campus; both")
      ->delimiter(',')
      ->check(one_of({"uniform", "campus"}))
      ->type_name("NAME,...");
  command->add_option("--burst", path->options.burst, "Packets a burst")
      ->check(whole_number(1, 64))
      ->capture_default_str()
      ->type_name("N");
  path->add_to(*command, path->options.repetitions, path->options.seed);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench path --live 786432 --json path.json");
  command->callback([&run, path] { run = [path] { return path->run(); }; });
}

}  // namespace millrace::cli
