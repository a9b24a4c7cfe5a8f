// `millrace bench scaling` measures throughput by number of workers, under each sharing scheme.
#include <algorithm>
#include <array>
#include <memory>

#include "bench/scaling.h"
#include "bench_command.h"
#include "conntrack/schemes.h"
#include "core/processors.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::ScalingOptions;
using bench::ScalingPrediction;
using bench::ScalingReport;
using bench::ScalingResult;

constexpr std::array<double, 4> kPredicted{8, 16, 32, 64};

struct ScalingCommand : BenchCommand {
  ScalingOptions options;
  std::vector<std::string> traffic;

  int run();
};

Json to_json(const ScalingResult& r) {
  Json latency = Json::object();
  for (const auto& [percent, us] : r.latency_us)
    latency[fmt::format("{}", percent)] = rounded(us, 3);
  Json line{{"table", r.table},
            {"sharing", r.sharing},
            {"ageing", LineConfig{}.ageing},
            {"traffic", to_string(r.traffic)},
            {"workers", r.workers},
            {"packets", r.packets}};
  line.update(spread_json("mpps", r.mpps, 3));
  line.update(spread_json(r.ns_per_packet));
  line.update(Json{{"waiting", rounded(r.waiting, 4)},
                   {"latency_us", std::move(latency)},
                   {"pages", to_string(r.pages)}});
  return line;
}

Json to_json(const ScalingPrediction& p) {
  Json mpps = Json::object();
  for (const double workers : kPredicted)
    mpps[fmt::format("{}", workers)] = rounded(p.law.at(workers), 3);
  return {{"table", p.table},
          {"sharing", p.sharing},
          {"traffic", to_string(p.traffic)},
          {"mpps_of_one", rounded(p.law.one, 3)},
          {"contention", rounded(p.law.contention, 6)},
          {"coherence", rounded(p.law.coherence, 6)},
          {"predicted_mpps", std::move(mpps)}};
}

Json to_json(const ScalingReport& report, const ScalingOptions& options) {
  Json all = results_json("scaling", report.complete,
                          {{"workers", options.workers},
                           {"tables", options.tables},
                           {"sharing", options.sharing},
                           {"live", options.live},
                           {"burst", options.burst}},
                          options);
  all.update(Json{{"processors", processors()},
                  {"predictions", Json::array()},
                  {"no_prediction", report.no_prediction}});
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  for (const auto& prediction : report.predictions)
    all["predictions"].push_back(to_json(prediction));
  return all;
}

void print(const ScalingReport& report) {
  fmt::print(
      "Mpps of all workers: median (least-most); x one: Mpps divided by the Mpps of one worker;\n"
      "ns each: ns a packet on one core; waiting: share of the workers' time spent waiting for\n"
      "each other; 50 %us: microseconds from receive to send that 50 % of the bursts do not "
      "exceed\n");
  fmt::print("{:12} {:10} {:16}{:>8}{:>22}{:>8}{:>10}{:>9}{:>9}{:>9}\n", "traffic", "table",
             "sharing", "workers", "Mpps", "x one", "ns each", "waiting", "50 %us", "99 %us");
  const ScalingResult* one = nullptr;  // the last result with one worker
  for (const auto& r : report.results) {
    if (r.workers == 1) one = &r;
    const bool same = one != nullptr && one->table == r.table && one->sharing == r.sharing &&
                      one->traffic == r.traffic;
    fmt::print("{:12} {:10} {:16}{:>8}{:>22}{:>8}{:>10}{:>7.1f} %{:>9.1f}{:>9.1f}\n",
               to_string(r.traffic), r.table, r.sharing, r.workers,
               fmt::format("{:.2f} ({:.2f}-{:.2f})", r.mpps.median, r.mpps.min, r.mpps.max),
               same ? fmt::format("{:.2f}", r.mpps.median / one->mpps.median) : "",
               short_ns(r.ns_per_packet.median), 100 * r.waiting, r.latency_us[0].second,
               r.latency_us[2].second);
  }
  if (!report.no_prediction.empty()) fmt::print("{}\n", report.no_prediction);
  for (const auto& p : report.predictions) {
    fmt::print("PREDICTED by the Universal Scalability Law, {}, {}, {}:", to_string(p.traffic),
               p.table, p.sharing);
    for (const double workers : kPredicted)
      fmt::print(" {:.1f} Mpps with {}", p.law.at(workers), workers);
    fmt::print("\n");
  }
}

int ScalingCommand::run() {
  if (!traffic.empty()) {
    options.traffic.clear();
    for (const auto& name : traffic) options.traffic.push_back(*bench::scaling_traffic_named(name));
  }
  for (const auto& ok :
       {each_once("--workers", options.workers), each_once("--table", options.tables),
        each_once("--sharing", options.sharing), each_once("--traffic", traffic)}) {
    if (!ok) return fail(ok.error());
  }
  std::ranges::sort(options.workers);
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(options.workers.back());
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_scaling(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--live", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

std::vector<std::string> sharing_names() {
  auto names = SharingSchemes::names();
  names.emplace_back(bench::kSharedCounter);
  return names;
}

}  // namespace

void add_bench_scaling(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("scaling", "Several workers, under every sharing scheme");
  const auto scaling = std::make_shared<ScalingCommand>();
  ScalingOptions& options = scaling->options;
  add_whole(*command, "--workers", options.workers, "Numbers of workers; 1 and 2", 1,
            Workers::kMost);
  add_names(*command, "--table", options.tables, "Tables; all that go with a scheme",
            TableSchemes::names());
  add_names(*command, "--sharing", options.sharing, "Sharing schemes; all", sharing_names());
  add_names(*command, "--traffic", scaling->traffic, "campus, flood, established; all",
            {"campus", "flood", "established"});
  add_whole(*command, "--live", options.live, "Connections; a flood has five times as many", 1,
            100'000'000);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  scaling->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench scaling --workers 1,2,4 --json scaling.json");
  command->callback([&run, scaling, command] {
    if (scaling->quick && command->count("--live") == 0) scaling->options.live = 5'000;
    if (scaling->quick && command->count("--repetitions") == 0) scaling->options.repetitions = 2;
    run = [scaling] { return scaling->run(); };
  });
}

}  // namespace millrace::cli
