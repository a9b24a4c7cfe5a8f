// `millrace bench overload`: what becomes of connections when there are too many.
#include "bench/overload.h"

#include <memory>

#include "bench_command.h"
#include "common_options.h"
#include "conntrack/schemes.h"

namespace millrace::cli {
namespace {

using bench::OverloadOptions;
using bench::OverloadReport;
using bench::PolicyResult;

struct OverloadCommand : BenchCommand {
  OverloadOptions options;

  int run();
};

Json to_json(const PolicyResult& r) {
  return {{"policy", r.policy},
          {"offered_ratio", rounded(r.offered_percent / 100.0)},
          {"established", r.established},
          {"packets", r.packets},
          {"established_goodput", rounded(r.established_goodput, 6)},
          {"misdirected", r.misdirected},
          {"begun", r.begun},
          {"new_served", rounded(r.new_served, 6)},
          {"ns_per_packet_median", rounded(r.ns_per_packet.median)},
          {"ns_per_packet_min", rounded(r.ns_per_packet.min)},
          {"ns_per_packet_max", rounded(r.ns_per_packet.max)},
          {"relative_rate_median", rounded(r.relative_rate.median, 3)},
          {"relative_rate_min", rounded(r.relative_rate.min, 3)},
          {"relative_rate_max", rounded(r.relative_rate.max, 3)},
          {"live", r.live},
          {"evicted", r.evicted},
          {"refused", r.refused},
          {"refused_early", r.refused_early},
          {"over_budget", r.over_budget}};
}

Json to_json(const OverloadReport& report, const OverloadOptions& options) {
  Json all = results_json("overload", report.complete,
                          {{"policies", options.policies},
                           {"offered_percent", options.offered_percent},
                           {"table", options.table},
                           {"ageing", options.ageing},
                           {"capacity", options.capacity},
                           {"half_open_percent", options.half_open_percent},
                           {"burst", options.burst}},
                          options);
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

void print(const OverloadReport& report) {
  fmt::print(
      "offered: connections, of the capacity; goodput: packets of established connections that\n"
      "came out right; served: clients that began meanwhile, all of whose packets did; rate:\n"
      "packets a second, against the same ones in a table with room for all\n");
  fmt::print("{:10}{:>9}{:>11}{:>11}{:>20}{:>7}{:>11}{:>10}{:>10}\n", "policy", "offered",
             "goodput", "served", "ns a packet", "rate", "live", "evicted", "refused");
  for (const auto& r : report.results) {
    fmt::print("{:10}{:>7} %{:>9.3f} %{:>9.3f} %{:>20}{:>7.2f}{:>11}{:>10}{:>10}\n", r.policy,
               r.offered_percent, 100 * r.established_goodput, 100 * r.new_served,
               cell(r.ns_per_packet), r.relative_rate.median, r.live, r.evicted, r.refused);
  }
}

int OverloadCommand::run() {
  for (const auto& ok :
       {each_once("--policy", options.policies), each_once("--offered", options.offered_percent)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  const auto report = bench::run_overload(options, progress_line(quiet));
  progress_line(quiet)("");
  if (!report) return fail(report.error());
  if (!report->complete) {
    warn("interrupted before it was finished");
    return kInterrupted;
  }
  return finish(true, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_overload(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("overload", "More connections than there is room for");
  const auto overload = std::make_shared<OverloadCommand>();
  OverloadOptions& options = overload->options;
  add_names(*command, "--policy", options.policies, "What a full table does; all",
            bench::overload_policies());
  add_whole(*command, "--offered", options.offered_percent,
            "Connections offered, % of the capacity; 50,80,100,150,200", 1,
            OverloadOptions::kMaxPercent);
  command->add_option("--table", options.table, "Which table")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  command->add_option("--ageing", options.ageing, "Which ageing scheme")
      ->check(one_of(AgeingSchemes::names()))
      ->capture_default_str();
  add_whole(*command, "--capacity", options.capacity, "Connections promised", 100,
            OverloadOptions::kMaxCapacity);
  add_whole(*command, "--half-open-percent", options.half_open_percent, "Budget of half-open ones",
            1, 100);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  overload->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it after the trial at hand, without results, a second one at once; the\n"
      "exit status is 130.\n\n"
      "Example: millrace bench overload --policy evict,drop --offered 80,200");
  command->callback([&run, overload, command] {
    if (overload->quick && command->count("--capacity") == 0) overload->options.capacity = 10'000;
    if (overload->quick && command->count("--repetitions") == 0) overload->options.repetitions = 1;
    run = [overload] { return overload->run(); };
  });
}

}  // namespace millrace::cli
