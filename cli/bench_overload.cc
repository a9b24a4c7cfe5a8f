// `millrace bench overload`: what becomes of connections when there are too many.
#include "bench/overload.h"

#include <memory>

#include "bench/machine.h"
#include "bench_command.h"
#include "common_options.h"
#include "conntrack/schemes.h"
#include "interrupt.h"
#include "output.h"
#include "validators.h"

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
  Json all{{"suite", "overload"},
           {"options",
            {{"policies", options.policies},
             {"offered_percent", options.offered_percent},
             {"table", options.table},
             {"ageing", options.ageing},
             {"capacity", options.capacity},
             {"half_open_percent", options.half_open_percent},
             {"repetitions", options.repetitions},
             {"burst", options.burst},
             {"seed", options.seed},
             {"pages", to_string(options.pages)}}},
           {"machine", bench::describe_machine()},
           {"results", Json::array()}};
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
  options.pages = pages_named(pages).value_or(Pages::huge);
  for (const auto& ok :
       {each_once("--policy", options.policies), each_once("--offered", options.offered_percent)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = check_json(); !ok) return fail(ok.error());
  catch_interrupts();
  const auto report = bench::run_overload(options, progress_line(quiet));
  progress_line(quiet)("");
  if (!report) return fail(report.error());
  if (!report->complete) {
    warn("interrupted before it was finished");
    return kInterrupted;
  }
  if (!json.empty()) {
    if (auto ok = write_whole(json, to_text(to_json(*report, options))); !ok)
      return fail(ok.error());
  }
  if (json != "-") print(*report);
  return kDone;
}

}  // namespace

void add_bench_overload(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("overload", "More connections than there is room for");
  const auto overload = std::make_shared<OverloadCommand>();
  OverloadOptions& options = overload->options;
  command->add_option("--policy", options.policies, "What a full table does; all")
      ->delimiter(',')
      ->check(one_of(bench::overload_policies()));
  command
      ->add_option("--offered", options.offered_percent,
                   "Connections offered, % of the capacity; 50,80,100,150,200")
      ->delimiter(',')
      ->check(whole_number(1, OverloadOptions::kMaxPercent))
      ->type_name("N,...");
  command->add_option("--table", options.table, "Which table")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  command->add_option("--ageing", options.ageing, "Which ageing scheme")
      ->check(one_of(AgeingSchemes::names()))
      ->capture_default_str();
  command->add_option("--capacity", options.capacity, "Connections promised")
      ->check(whole_number(100, OverloadOptions::kMaxCapacity))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--half-open-percent", options.half_open_percent, "Budget of half-open ones")
      ->check(whole_number(1, 100))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--burst", options.burst, "Packets a burst")
      ->check(whole_number(1, 64))
      ->capture_default_str()
      ->type_name("N");
  overload->add_to(*command, options.repetitions, options.seed);
  command->footer(
      "\nAn interrupt ends it without results, and the exit status is 130.\n\n"
      "Example: millrace bench overload --policy evict,drop --offered 80,200");
  command->callback([&run, overload, command] {
    if (overload->quick && command->count("--capacity") == 0) overload->options.capacity = 10'000;
    if (overload->quick && command->count("--repetitions") == 0) overload->options.repetitions = 1;
    run = [overload] { return overload->run(); };
  });
}

}  // namespace millrace::cli
