// `millrace bench level`: what moving a shard costs, how fast workers are with a skewed load once
// it is levelled, and how evenly many workers would be loaded.
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

using bench::ImbalanceResult;
using bench::LevelLatency;
using bench::Levelling;
using bench::ScalingResult;

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

double lost_share(const LevelReport& report) {
  return static_cast<double>(report.lost) /
         static_cast<double>(std::max<std::uint64_t>(report.arrived, 1));
}

/// Returns a row for the mean and one for each percentile, for each kind of packets.
Json latency_json(const LevelReport& report) {
  Json rows = Json::array();
  for (const LevelLatency& latency : report.latency) {
    const bool moves = latency.of != bench::LevelPackets::at_rest && report.moves_at_rate > 0;
    const auto add = [&](const std::string& part, const Spread& us) {
      Json row{{"packets", to_string(latency.of)}, {"part", part}, {"counted", latency.packets}};
      row.update(spread_json("us", us, 2));
      row["lost_share"] = rounded(lost_share(report), 6);
      row["moves"] = moves ? report.moves_at_rate : 0;
      row["move_ms"] = moves ? Json(rounded(report.move_ms_at_rate[0].second, 3)) : Json();
      rows.push_back(std::move(row));
    };
    add("mean", latency.mean);
    for (std::size_t n = 0; n < latency.percentiles.size(); ++n)
      add(fmt::format("{} %", LevelLatency::kPercents[n]), latency.percentiles[n]);
  }
  return rows;
}

Json to_json(const ImbalanceResult& r) {
  Json line{{"traffic", to_string(r.traffic)},
            {"levelling", to_string(r.levelling)},
            {"workers", r.workers}};
  line.update(spread_json("packets_percent", r.packets, 3));
  line.update(spread_json("bytes_percent", r.bytes, 3));
  line["moves_a_second"] = rounded(r.moves_a_second, 2);
  return line;
}

Json to_json(const ScalingResult& r) {
  return {{"second", r.second},
          {"load", rounded(r.load, 4)},
          {"workers", r.in_use},
          {"lost_share", rounded(r.lost, 6)},
          {"moves", r.moves}};
}

Json to_json(const LevelReport& report, const LevelOptions& options) {
  Json all = results_json("level", report.complete,
                          {{"workers", options.workers},
                           {"table", options.table},
                           {"live", options.live},
                           {"shards", options.shards},
                           {"burst", options.burst},
                           {"seconds", options.seconds},
                           {"offered", options.offered},
                           {"simulated", options.simulation.workers},
                           {"packets", options.simulation.packets},
                           {"peak", options.simulation.peak},
                           {"move_ms", options.simulation.move_ms}},
                          options);
  all.update(Json{{"processors", processors()}, {"pages", to_string(report.pages)}});
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  all.update(Json{
      {"latency", latency_json(report)}, {"imbalance", Json::array()}, {"scaling", Json::array()}});
  for (const auto& result : report.simulation.imbalance)
    all["imbalance"].push_back(to_json(result));
  for (const auto& result : report.simulation.scaling) all["scaling"].push_back(to_json(result));
  return all;
}

void print_latency(const LevelReport& report, const LevelOptions& options) {
  fmt::print(
      "\nMicroseconds from arrival to send at {} of the throughput with an even load: median "
      "(least-most) of slices\n{:20}{:>24}{:>24}{:>24}{:>24}\n",
      options.offered, "packets", "mean", "50 %", "95 %", "99 %");
  for (const LevelLatency& latency : report.latency) {
    fmt::print("{:20}{:>24}", to_string(latency.of), cell(latency.mean));
    for (const Spread& us : latency.percentiles) {
      fmt::print("{:>24}", fmt::format("{} ({}-{})", short_us(us.median), short_us(us.min),
                                       short_us(us.max)));
    }
    fmt::print("\n");
  }
  if (report.moves_at_rate > 0) {
    fmt::print(
        "Of {} moves meanwhile, 50 % took at most {:.2f} ms and 99 % at most {:.2f} ms; {:.2f} % "
        "of packets found a queue full\n",
        report.moves_at_rate, report.move_ms_at_rate[0].second, report.move_ms_at_rate[1].second,
        100 * lost_share(report));
  }
}

void print_imbalance(const std::vector<ImbalanceResult>& results) {
  fmt::print(
      "\nSimulated workers: by how many percent the busiest worker's packets, and bytes, exceed "
      "the idlest worker's in a second (2000: by 2000 % or more): median (least-most) of all "
      "seconds; moves a second\n"
      "{:10}{:10}{:>8}{:>24}{:>24}{:>10}\n",
      "traffic", "shards", "workers", "packets", "bytes", "moves");
  for (const ImbalanceResult& r : results) {
    fmt::print("{:10}{:10}{:>8}{:>24}{:>24}{:>10.1f}\n", to_string(r.traffic),
               to_string(r.levelling), r.workers, cell(r.packets), cell(r.bytes), r.moves_a_second);
  }
}

void print_scaling(const std::vector<ScalingResult>& results, unsigned workers) {
  constexpr unsigned kEach = 5;
  fmt::print(
      "\n{} simulated workers, of which as many are in use as the load needs: load in capacities "
      "of one worker, workers in use, share of packets lost in that "
      "second\n{:>8}{:>8}{:>8}{:>10}\n",
      workers, "second", "load", "in use", "lost");
  for (const ScalingResult& r : results) {
    if (r.second % kEach == 0)
      fmt::print("{:>8}{:>8.2f}{:>8}{:>8.2f} %\n", r.second, r.load, r.in_use, 100 * r.lost);
  }
}

void print(const LevelReport& report, const LevelOptions& options) {
  fmt::print(
      "Mpps of all workers; x even: Mpps divided by the even case's; busiest: the busiest worker's "
      "packets divided by the workers' mean: median (least-most); connections: connections of a "
      "moving shard, on average; 50 % ms: milliseconds that 50 % of the moves do not exceed\n");
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
  print_latency(report, options);
  print_imbalance(report.simulation.imbalance);
  print_scaling(report.simulation.scaling, bench::SimulationOptions::kScaling);
}

int LevelCommand::run() {
  if (auto ok = each_once("--simulated", options.simulation.workers); !ok) return fail(ok.error());
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(options.workers);
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_level(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--live", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  constexpr double kManyLost = 0.01;
  if (lost_share(*report) > kManyLost) {
    warn(
        fmt::format("{:.0f} % of packets found a queue full while latency was measured: other "
                    "programs use the processors, too, and raise the latencies",
                    100 * lost_share(*report)));
  }
  return finish(report->complete, to_json(*report, options), [&] { print(*report, options); });
}

}  // namespace

void add_bench_level(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("level", "Shards that move between workers, running and simulated");
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
  command->add_option("--seconds", options.seconds, "Length of each measurement")
      ->check(number(0.01, 3600))
      ->capture_default_str()
      ->type_name("S");
  command
      ->add_option("--offered", options.offered,
                   "Rate for latency, as a share of the even load's throughput")
      ->check(number(0.01, 1))
      ->capture_default_str()
      ->type_name("X");
  bench::SimulationOptions& simulation = options.simulation;
  add_whole(*command, "--simulated", simulation.workers, "Numbers of simulated workers; 1 to 16", 1,
            Workers::kMost);
  add_whole(*command, "--packets", simulation.packets, "Simulated packets of each kind of traffic",
            10'000, 10'000'000'000);
  command
      ->add_option("--peak", simulation.peak,
                   "Peak of the simulated load, in capacities of one worker")
      ->check(number(0.01, bench::SimulationOptions::kScaling))
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--move-ms", simulation.move_ms, "How long a simulated move of a shard takes")
      ->check(number(0.01, 10'000))
      ->capture_default_str()
      ->type_name("MS");
  level->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench level --live 1000000 --json level.json");
  command->callback([&run, level, command] {
    if (level->quick && command->count("--live") == 0) level->options.live = 10'000;
    if (level->quick && command->count("--packets") == 0)
      level->options.simulation.packets = 1'000'000;
    if (level->quick && command->count("--seconds") == 0) level->options.seconds = 0.1;
    if (level->quick && command->count("--repetitions") == 0) level->options.repetitions = 1;
    run = [level] { return level->run(); };
  });
}

}  // namespace millrace::cli
