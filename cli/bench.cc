// `millrace bench`: measures on this machine, in one run, what the study compares.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "bench/machine.h"
#include "bench/path.h"
#include "command.h"
#include "common_options.h"
#include "output.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;
using bench::PathOptions;
using bench::PathResult;
using bench::Spread;

struct PathCommand {
  PathOptions options;
  std::vector<std::string> traffic;
  std::string pages = "huge";
  std::string json;
  bool quick = false;
  bool quiet = false;

  int run();
};

Json to_json(const Spread& spread) {
  const auto cents = [](double ns) { return std::round(ns * 100.0) / 100.0; };
  return {{"ns_median", cents(spread.median)},
          {"ns_min", cents(spread.min)},
          {"ns_max", cents(spread.max)}};
}

Json to_json(const PathResult& result) {
  Json stages = Json::object();
  for (const auto& [name, spread] : result.stages) stages[std::string(name)] = to_json(spread);
  return {{"traffic", to_string(result.traffic)},
          {"live", result.live},
          {"packets", result.packets},
          {"pages", to_string(result.pages)},
          {"parse", to_json(result.parse)},
          {"parse_and_touch", to_json(result.touch)},
          {"whole", to_json(result.whole)},
          {"stages", std::move(stages)}};
}

std::string cell(const Spread& s) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", s.median, s.min, s.max);
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
  if (!json.empty()) {
    if (auto ok = check_writable(json); !ok) return fail(ok.error());
  }
  const bool show = !quiet && ::isatty(STDERR_FILENO) != 0;
  const auto results = bench::run_path(options, [show](const std::string& what) {
    if (show) say(fmt::format("\r\033[K{}", what));
  });
  if (show) say("\r\033[K");
  if (!results) return fail(results.error());
  if (json != "-") print(*results);
  if (json.empty()) return kDone;
  Json all{{"suite", "path"}, {"machine", bench::describe_machine()}, {"results", Json::array()}};
  for (const auto& result : *results) all["results"].push_back(to_json(result));
  const auto ok = write_whole(json, to_text(all));
  return ok ? kDone : fail(ok.error());
}

void add_path(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("path", "A packet's whole way, beside parsing and a bare touch");
  const auto path = std::make_shared<PathCommand>();
  command->add_option("--live", path->options.live, "Connections; 786432 and 3145728")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100000000}))
      ->type_name("N,...");
  command->add_option("--traffic", path->traffic, "uniform, campus; both")
      ->delimiter(',')
      ->check(CLI::IsMember({"uniform", "campus"}))
      ->type_name("NAME,...");
  command->add_option("--repetitions", path->options.repetitions, "Timed passes of each contender")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--burst", path->options.burst, "Packets a burst")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--pages", path->pages, "Best memory to try: huge, transparent or small")
      ->check(CLI::IsMember({"huge", "transparent", "small"}))
      ->capture_default_str();
  command->add_option("--seed", path->options.seed, "Fixes traffic and hash")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--json", path->json, "Write results as JSON; - in place of the table")
      ->type_name("FILE");
  command->add_flag("--quick", path->quick, "A small size only: does it still work?");
  command->add_flag("--quiet", path->quiet, "No progress");
  command->footer("\nExample: millrace bench path --live 786432 --json path.json");
  command->callback([&run, path] { run = [path] { return path->run(); }; });
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("bench", "Measure on this machine");
  command->require_subcommand(1);
  command->footer("\nExample: millrace bench path --quick");
  add_path(*command, run);
}

}  // namespace millrace::cli
