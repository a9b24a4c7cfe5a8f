// `millrace bench ageing` measures what finding idle connections costs, and how well it works.
#include "bench/ageing.h"

#include <algorithm>
#include <memory>

#include "bench_command.h"
#include "conntrack/schemes.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::AgeingOptions;
using bench::AgeingReport;
using bench::AgeingResult;

struct AgeingCommand : BenchCommand {
  AgeingOptions options;

  int run();
};

Json to_json(const AgeingResult& r) {
  Json line{{"ageing", r.ageing},
            {"interval_ms", r.interval_ms == 0 ? Json(nullptr) : Json(r.interval_ms)},
            {"workers", r.workers},
            {"live", rounded(r.live.median, 0)}};
  line.update(spread_json("mpps", r.mpps, 3));
  line.update(spread_json("ns_per_packet", r.ns_per_packet, 3));
  line.update(spread_json("ageing_ns_per_packet", r.ageing_ns_per_packet, 3));
  line["ageing_ns_per_packet_95"] = {rounded(r.confidence.min, 3), rounded(r.confidence.max, 3)};
  for (const auto& [percent, us] : r.burst_us)
    line["burst_us"][fmt::format("{}", percent)] = rounded(us, 3);
  line.update(Json{{"kept_too_long", rounded(r.kept_too_long, 4)},
                   {"ended_too_soon", r.ended_too_soon},
                   {"timed_out", r.timed_out},
                   {"pages", to_string(r.pages)}});
  return line;
}

Json to_json(const AgeingReport& report, const AgeingOptions& options) {
  Json all = results_json("ageing", report.complete,
                          {{"ageing", options.schemes},
                           {"interval_ms", options.interval_ms},
                           {"workers", options.workers},
                           {"table", options.table},
                           {"sharing", options.sharing},
                           {"connections", options.connections},
                           {"packets_per_connection", options.packets_per_connection},
                           {"timeout_ms", options.timeout_ms},
                           {"burst", options.burst}},
                          options);
  all["packets"] = report.packets;
  all["exact_live"] = rounded(report.exact_live, 0);
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

void print(const AgeingReport& report) {
  fmt::print(
      "ns each: ns a packet; more: ns a packet that ageing adds, median and 95 % confidence\n"
      "interval; 99 %us: microseconds from receive to send that 99 % of the bursts do not exceed;\n"
      "late: live connections beyond the number with exact timeouts, in % of that number\n");
  fmt::print("{:8}{:>8}{:>9}{:>11}{:>20} {:>27}{:>8}{:>9}{:>10}{:>9}\n", "ageing", "ms", "workers",
             "live", "ns each", "more", "99 %us", "99.9 %us", "99.99 %us", "late");
  for (const auto& r : report.results) {
    const bool none = r.interval_ms == 0;
    const std::string more = fmt::format("{:+.2f} ({:+.2f} to {:+.2f})", r.confidence.median,
                                         r.confidence.min, r.confidence.max);
    fmt::print("{:8}{:>8}{:>9}{:>11.0f}{:>20} {:>27}{:>8.1f}{:>9.1f}{:>10.1f}{:>7.1f} %\n",
               r.ageing, none ? "" : fmt::format("{}", r.interval_ms), r.workers, r.live.median,
               cell(r.ns_per_packet), none ? "" : more, r.burst_us[2].second, r.burst_us[3].second,
               r.burst_us[4].second, 100 * r.kept_too_long);
  }
  fmt::print("With exact timeouts {:.0f} connections would live on average.\n", report.exact_live);
}

int AgeingCommand::run() {
  for (const auto& ok :
       {each_once("--ageing", options.schemes), each_once("--interval-ms", options.interval_ms),
        each_once("--workers", options.workers)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = check_schemes({.table = options.table, .sharing = options.sharing}); !ok)
    return fail(ok.error());
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(std::ranges::max(options.workers));
  LiveTable live(quiet, Unit::ns);
  const auto report = bench::run_ageing(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--connections", report.error()));
  if (!report->complete) {
    warn("interrupted before it was finished");
    return kInterrupted;
  }
  return finish(true, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_ageing(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("ageing", "Finding idle connections, by each scheme");
  const auto ageing = std::make_shared<AgeingCommand>();
  AgeingOptions& options = ageing->options;
  add_names(*command, "--ageing", options.schemes, "Schemes to compare with none; all",
            AgeingSchemes::names());
  add_whole(*command, "--interval-ms", options.interval_ms,
            "Milliseconds between searches for idle connections; 1000,100,10,1", 1, 1000);
  add_whole(*command, "--workers", options.workers, "Numbers of workers; 1 and 2", 1,
            Workers::kMost);
  command->add_option("--table", options.table, "Connection table")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  command->add_option("--sharing", options.sharing, "How workers share the table")
      ->check(one_of(SharingSchemes::names()))
      ->capture_default_str();
  add_whole(*command, "--connections", options.connections, "Connections opened in all", 1,
            20'000'000);
  add_whole(*command, "--packets-per-connection", options.packets_per_connection,
            "Packets of a connection on average, both directions together", 5, 10'000);
  add_whole(*command, "--timeout-ms", options.timeout_ms, "Idle time after which a connection ends",
            1, 1'000'000'000);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  ageing->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it after the trial at hand, without results; a second one ends it\n"
      "at once. The exit status is 130.\n\n"
      "Example: millrace bench ageing --ageing wheel,lazy --interval-ms 1 --repetitions 20");
  command->callback([&run, ageing, command] {
    if (ageing->quick && command->count("--connections") == 0) ageing->options.connections = 10'000;
    if (ageing->quick && command->count("--repetitions") == 0) ageing->options.repetitions = 2;
    run = [ageing] { return ageing->run(); };
  });
}

}  // namespace millrace::cli
