// `millrace bench level`: what moving a shard costs, and what levelling a skewed load brings.
#include "bench/level.h"

#include <algorithm>
#include <memory>

#include "bench_command.h"
#include "conntrack/schemes.h"
#include "core/processors.h"
#include "live_table.h"
#include "shard/indirection.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::LevelCase;
using bench::LevelOptions;
using bench::LevelReport;
using bench::LevelResult;

struct LevelCommand : BenchCommand {
  LevelOptions options;

  int run();
};

Json to_json(const LevelResult& r) {
  Json line{{"case", to_string(r.of)}};
  line.update(spread_json("mpps", r.mpps, 3));
  line.update(spread_json("of_even", r.of_even, 4));
  line.update(spread_json("busiest", r.busiest, 4));
  Json move_ms = Json::object();
  for (const auto& [percent, ms] : r.move_ms) move_ms[fmt::format("{}", percent)] = rounded(ms, 3);
  line.update(Json{{"moves", r.moves},
                   {"connections_per_move", rounded(r.connections_per_move, 1)},
                   {"move_ms", std::move(move_ms)}});
  return line;
}

Json to_json(const LevelReport& report, const LevelOptions& options) {
  Json all = results_json("level", report.complete,
                          {{"workers", options.workers},
                           {"table", options.table},
                           {"live", options.live},
                           {"shards", options.shards},
                           {"burst", options.burst},
                           {"seconds", options.seconds}},
                          options);
  all.update(Json{{"processors", processors()}, {"pages", to_string(report.pages)}});
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

void print(const LevelReport& report) {
  fmt::print(
      "Mpps of all workers, the same in that of an even load without moves, and the busiest "
      "worker's "
      "packets in the mean's: median (least-most)\n");
  fmt::print("{:10}{:>22}{:>22}{:>22}{:>8}{:>14}{:>10}{:>10}\n", "case", "Mpps", "x even",
             "busiest", "moves", "connections", "50 % ms", "99 % ms");
  for (const LevelResult& r : report.results) {
    const auto range = [](const Spread& of) {
      return fmt::format("{:.2f} ({:.2f}-{:.2f})", of.median, of.min, of.max);
    };
    fmt::print("{:10}{:>22}{:>22}{:>22}", to_string(r.of), range(r.mpps), range(r.of_even),
               range(r.busiest));
    if (r.moves > 0) {
      fmt::print("{:>8}{:>14.0f}{:>10.2f}{:>10.2f}", r.moves, r.connections_per_move,
                 r.move_ms[0].second, r.move_ms[1].second);
    }
    fmt::print("\n");
  }
}

int LevelCommand::run() {
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(options.workers);
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_level(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--live", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_level(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("level", "Shards that move between running workers");
  const auto level = std::make_shared<LevelCommand>();
  LevelOptions& options = level->options;
  constexpr unsigned kMostWorkers = 4;
  add_whole(*command, "--workers", options.workers, "Worker threads", 2, kMostWorkers);
  command->add_option("--table", options.table, "Connection table")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  add_whole(*command, "--live", options.live, "Connections", 1'000, 100'000'000);
  command->add_option("--shards", options.shards, "Shards")
      ->check(one_of({"128", "256", "512"}))
      ->capture_default_str();
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  command->add_option("--seconds", options.seconds, "Of each measurement")
      ->check(number(0.01, 3600))
      ->capture_default_str()
      ->type_name("S");
  level->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench level --live 1000000 --json level.json");
  command->callback([&run, level, command] {
    if (level->quick && command->count("--live") == 0) level->options.live = 10'000;
    if (level->quick && command->count("--seconds") == 0) level->options.seconds = 0.1;
    if (level->quick && command->count("--repetitions") == 0) level->options.repetitions = 1;
    run = [level] { return level->run(); };
  });
}

}  // namespace millrace::cli
