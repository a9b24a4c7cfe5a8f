// `millrace bench rate` measures forwarded and lost packets and their latency at a given rate.
#include "bench/rate.h"

#include <algorithm>
#include <array>
#include <memory>

#include "bench_command.h"
#include "conntrack/schemes.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::LatencyBins;
using bench::RateOptions;
using bench::RateReport;
using bench::RateResult;

constexpr std::array<const char*, RateOptions::kPercents.size()> kPercentileNames{
    "p50_us", "p90_us", "p99_us", "p999_us"};

struct RateCommand : BenchCommand {
  RateOptions options;

  int run();
};

/// Returns the shares of packets by microsecond, without empty bins.
Json bins_json(const LatencyBins& latency) {
  const auto total = static_cast<double>(latency.total());
  Json bins = Json::object();
  for (std::size_t us = 0; us < latency.counts().size(); ++us) {
    const auto count = static_cast<double>(latency.counts()[us]);
    if (count > 0) bins[fmt::format("{}", us)] = rounded(count / total, 9);
  }
  return bins;
}

Json to_json(const RateResult& r) {
  Json line{{"table", r.table},
            {"sharing", r.sharing},
            {"ageing", LineConfig{}.ageing},
            {"workers", r.workers},
            {"load", rounded(r.load, 4)},
            {"offered_mpps", rounded(r.offered_mpps, 4)},
            {"offered", r.offered},
            {"forwarded", r.forwarded},
            {"lost", r.lost},
            {"opened", r.opened},
            {"refused", r.refused}};
  line.update(spread_json("mpps", r.mpps, 4));
  line.update(spread_json("gbps", r.gbps, 4));
  line.update(spread_json("lost", r.lost_share, 6));
  for (std::size_t i = 0; i < kPercentileNames.size(); ++i)
    line.update(spread_json(kPercentileNames[i], r.latency_us[i], 2));
  line.update(Json{{"waiting", rounded(r.waiting, 4)},
                   {"pages", to_string(r.pages)},
                   {"bins", bins_json(r.latency)}});
  return line;
}

Json to_json(const RateReport& report, const RateOptions& options) {
  Json all = results_json("rate", report.complete,
                          {{"tables", options.tables},
                           {"sharing", options.sharing},
                           {"workers", options.workers},
                           {"offered", options.offered_mpps},
                           {"load", options.loads},
                           {"live", options.live},
                           {"seconds", options.seconds},
                           {"queue", options.queue},
                           {"burst", options.burst}},
                          options);
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

void print(const RateReport& report) {
  fmt::print(
      "Mpps of all workers: offered, and passed: median (least-most); lost: share of the offered\n"
      "packets that found the queue full; 50 %, 99 %, 99.9 %: percentiles of the passed packets'\n"
      "latency, from arrival to send, in microseconds\n");
  fmt::print("{:11}{:17}{:>7}{:>7}{:>8}{:>20}{:>9}{:>7}{:>7}{:>7}\n", "table", "sharing", "workers",
             "load", "offered", "passed", "lost", "50 %", "99 %", "99.9 %");
  std::uint64_t refused = 0;
  for (const auto& r : report.results) {
    refused += r.refused;
    fmt::print("{:11}{:17}{:>7}{:>7.4g}{:>8.2f}{:>20}{:>7.2f} %{:>7}{:>7}{:>7}\n", r.table,
               r.sharing, r.workers, r.load, r.offered_mpps,
               fmt::format("{:.2f} ({:.2f}-{:.2f})", r.mpps.median, r.mpps.min, r.mpps.max),
               100 * r.lost_share.median, short_us(r.latency_us[0].median),
               short_us(r.latency_us[2].median), short_us(r.latency_us[3].median));
  }
  if (refused > 0) fmt::print("{} connections found no room, and were not tracked\n", refused);
}

int RateCommand::run() {
  for (const auto& ok :
       {each_once("--table", options.tables), each_once("--sharing", options.sharing),
        each_once("--workers", options.workers), each_once("--offered", options.offered_mpps),
        each_once("--load", options.loads)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(std::ranges::max(options.workers));
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_rate(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--live", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

void add_numbers(CLI::App& command, const std::string& name, std::vector<double>& values,
                 const std::string& text, double from, double to) {
  command.add_option(name, values, text)
      ->delimiter(',')
      ->check(number(from, to))
      ->type_name("X,...");
}

}  // namespace

void add_bench_rate(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("rate", "Packets at a given rate: how many pass, and their latency");
  const auto rate = std::make_shared<RateCommand>();
  RateOptions& options = rate->options;
  add_names(*command, "--table", options.tables,
            "Tables; race, cuckoo, cuckoo++, chained, hopscotch, std", TableSchemes::names());
  add_names(*command, "--sharing", options.sharing, "Sharing schemes; sharded, mutex",
            SharingSchemes::names());
  add_whole(*command, "--workers", options.workers, "Numbers of workers; 1 and 2", 1,
            Workers::kMost);
  add_numbers(*command, "--offered", options.offered_mpps,
              "Million packets a second, to all workers together; 1,2,4,6,8,10,15,20", 0.01, 1000);
  add_numbers(*command, "--load", options.loads,
              "Connections, as a share of the promised capacity; 0.65", 0.01, 1);
  add_whole(*command, "--live", options.live, "Connections", RateOptions::kLeastLive, 100'000'000);
  command->add_option("--seconds", options.seconds, "Length of each run")
      ->check(number(0.01, 60))
      ->capture_default_str()
      ->type_name("X");
  add_whole(*command, "--queue", options.queue, "Packets that may wait for a worker", 1, 65'536);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  rate->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\n"
      "Example: millrace bench rate --table race,cuckoo --offered 1,5,10 --load 0.65,0.95");
  command->callback([&run, rate, command] {
    RateOptions& quick = rate->options;
    if (rate->quick && command->count("--live") == 0) quick.live = 5'000;
    if (rate->quick && command->count("--repetitions") == 0) quick.repetitions = 1;
    if (rate->quick && command->count("--seconds") == 0) quick.seconds = 0.02;
    if (rate->quick && command->count("--offered") == 0) quick.offered_mpps = {1, 20};
    run = [rate] { return rate->run(); };
  });
}

}  // namespace millrace::cli
