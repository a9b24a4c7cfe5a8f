// `millrace bench overload` measures what becomes of connections when there are too many.
#include "bench/overload.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "bench_command.h"
#include "conntrack/schemes.h"
#include "live_table.h"
#include "worker/workers.h"

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
  Json line{{"policy", r.policy},
            {"table", r.table},
            {"workers", r.workers},
            {"division", r.division},
            {"offered_ratio", rounded(r.offered_percent / 100.0)},
            {"established", r.established},
            {"packets", r.packets},
            {"established_goodput", rounded(r.established_goodput, 6)},
            {"misdirected", r.misdirected},
            {"begun", r.begun},
            {"new_served", rounded(r.new_served, 6)},
            {"new_refused", rounded(r.new_refused, 6)},
            {"goodput", rounded(r.goodput, 6)},
            {"first_refused_load",
             r.first_refused_load ? Json(rounded(*r.first_refused_load, 6)) : Json()}};
  line.update(spread_json("mpps", r.mpps, 3));
  line.update(spread_json("ns_per_packet", r.ns_per_packet));
  line.update(spread_json("relative_rate", r.relative_rate, 3));
  line.update(Json{{"live", r.live},
                   {"evicted", r.evicted},
                   {"refused", r.refused},
                   {"refused_early", r.refused_early},
                   {"over_budget", r.over_budget}});
  return line;
}

Json to_json(const OverloadReport& report, const OverloadOptions& options) {
  Json all = results_json("overload", report.complete,
                          {{"policies", options.policies},
                           {"offered_percent", options.offered_percent},
                           {"tables", options.tables},
                           {"workers", options.workers},
                           {"divisions", options.divisions},
                           {"ageing", options.ageing},
                           {"capacity", options.capacity},
                           {"half_open_percent", options.half_open_percent},
                           {"burst", options.burst}},
                          options);
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

std::string percent(double ratio, int digits = 3) {
  return fmt::format("{:.{}f} %", 100 * ratio, digits);
}

/// A column of the table. Columns that are not needed are left out.
struct Column {
  std::string_view heading;
  int width;  ///< below 0: aligned to the left, for names
  bool is_shown;
  std::function<std::string(const PolicyResult&)> cell;
};

bool has_several_workers(const OverloadOptions& options) {
  return options.workers != std::vector{1U};
}
/// Returns true if the options compare more than policies.
bool compares_more(const OverloadOptions& options) {
  return options.tables.size() > 1 || options.divisions.size() > 1 || has_several_workers(options);
}

/// Returns the columns, 108 characters at most. If the options compare more than policies, there
/// are columns for that, and some figures are in the JSON only.
std::vector<Column> columns_of(const OverloadOptions& options) {
  const bool more = compares_more(options);
  return {
      {"table", -11, options.tables.size() > 1, [](const auto& r) { return r.table; }},
      {"workers", 8, has_several_workers(options),
       [](const auto& r) { return fmt::format("{}", r.workers); }},
      {"  division", -10, options.divisions.size() > 1,
       [](const auto& r) { return "  " + r.division; }},
      {more ? "  policy" : "policy", more ? -11 : -10, true,
       [more](const auto& r) { return (more ? "  " : "") + r.policy; }},
      {"offered", more ? 8 : 9, true,
       [](const auto& r) { return fmt::format("{} %", r.offered_percent); }},
      {"goodput", more ? 9 : 11, true,
       [more](const auto& r) { return percent(r.established_goodput, more ? 2 : 3); }},
      {"of all", 9, more, [](const auto& r) { return percent(r.goodput, 2); }},
      {"served", more ? 9 : 11, true,
       [more](const auto& r) { return percent(r.new_served, more ? 2 : 3); }},
      {"refused at", 11, more,
       [](const auto& r) {
         return r.first_refused_load ? percent(*r.first_refused_load, 1) : std::string("-");
       }},
      {"ns a packet", 20, !more, [](const auto& r) { return cell(r.ns_per_packet); }},
      {"ns each", 8, more, [](const auto& r) { return short_ns(r.ns_per_packet.median); }},
      {"Mpps", 8, more, [](const auto& r) { return fmt::format("{:.2f}", r.mpps.median); }},
      {"rate", more ? 6 : 7, true,
       [](const auto& r) { return fmt::format("{:.2f}", r.relative_rate.median); }},
      {"live", 11, !more, [](const auto& r) { return fmt::format("{}", r.live); }},
      {"evicted", 10, !more, [](const auto& r) { return fmt::format("{}", r.evicted); }},
      {"refused", 10, !more, [](const auto& r) { return fmt::format("{}", r.refused); }},
  };
}

std::string padded(std::string_view text, int width) {
  return width < 0 ? fmt::format("{:{}}", text, -width) : fmt::format("{:>{}}", text, width);
}

void print(const OverloadReport& report, const OverloadOptions& options) {
  std::vector<Column> columns = columns_of(options);
  std::erase_if(columns, [](const Column& column) { return !column.is_shown; });
  fmt::print(
      "offered: all connections, in % of the capacity; goodput: share of the packets due on\n"
      "established connections that were sent with the right address; served: share of the "
      "genuine\n"
      "clients that began meanwhile whose packets were all sent with the right address; rate:\n"
      "packets a second, divided by the packets a second of tables with room for all "
      "connections\n");
  if (compares_more(options)) {
    fmt::print(
        "of all: as goodput, for the connections of all genuine clients; refused at: connections\n"
        "with entries when the first connection found no place, in % of the capacity; Mpps: of\n"
        "all workers together, median\n");
  }
  std::string heading;
  for (const Column& column : columns) heading += padded(column.heading, column.width);
  fmt::print("{}\n", heading);
  for (const auto& result : report.results) {
    std::string line;
    for (const Column& column : columns) line += padded(column.cell(result), column.width);
    fmt::print("{}\n", line);
  }
}

std::vector<Result<void>> check(const OverloadOptions& options) {
  std::vector<Result<void>> all{
      each_once("--policy", options.policies), each_once("--offered", options.offered_percent),
      each_once("--table", options.tables), each_once("--workers", options.workers),
      each_once("--division", options.divisions)};
  const unsigned most = std::ranges::max(options.workers);
  if (options.capacity < most) {
    all.emplace_back(misused(fmt::format("--capacity: {} for {} workers: give {} or more",
                                         options.capacity, most, most)));
  }
  return all;
}

int OverloadCommand::run() {
  for (const auto& ok : check(options)) {
    if (!ok) return fail(ok.error());
  }
  std::ranges::sort(options.workers);
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(options.workers.back());
  LiveTable live(quiet, Unit::ns);
  const auto report = bench::run_overload(options, live.progress());
  live.clear();
  if (!report) return fail(report.error());
  if (!report->complete) {
    warn("interrupted before it was finished");
    return kInterrupted;
  }
  return finish(true, to_json(*report, options), [&] { print(*report, options); });
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
  add_names(*command, "--table", options.tables, "Tables; race", TableSchemes::names());
  add_whole(*command, "--workers", options.workers, "Numbers of workers; 1", 1, Workers::kMost);
  add_names(*command, "--division", options.divisions,
            "How workers divide the capacity: room (for unequal numbers of clients) or even; room",
            bench::overload_divisions());
  command->add_option("--ageing", options.ageing, "Ageing scheme")
      ->check(one_of(AgeingSchemes::names()))
      ->capture_default_str();
  add_whole(*command, "--capacity", options.capacity, "Connections promised", 100,
            OverloadOptions::kMaxCapacity);
  add_whole(*command, "--half-open-percent", options.half_open_percent,
            "Most half-open connections, % of the capacity", 1, 100);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  overload->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it after the trial at hand, without results; a second one ends it\n"
      "at once. The exit status is 130.\n\n"
      "Examples: millrace bench overload --policy evict,drop --offered 80,200\n"
      "          millrace bench overload --policy drop --offered 90,100,110,120 --workers 1,4\n"
      "                                  --table race,cuckoo --division room,even");
  command->callback([&run, overload, command] {
    if (overload->quick && command->count("--capacity") == 0) overload->options.capacity = 10'000;
    if (overload->quick && command->count("--repetitions") == 0) overload->options.repetitions = 1;
    run = [overload] { return overload->run(); };
  });
}

}  // namespace millrace::cli
