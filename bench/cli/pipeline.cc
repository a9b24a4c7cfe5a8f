// `millrace bench pipeline` predicts and measures one thread that reads for all workers.
#include <algorithm>
#include <memory>

#include "bench/pipeline.h"
#include "bench_command.h"
#include "conntrack/schemes.h"
#include "core/processors.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::PipelineOptions;
using bench::PipelinePart;
using bench::PipelineReport;
using bench::PipelineResult;
using bench::PipelineSummary;

struct PipelineCommand : BenchCommand {
  PipelineOptions options;

  int run();
  void warn_of_too_many_threads() const;
};

/// Adds NAME_median, NAME_min and NAME_max, which are null if there is no spread.
void put(Json& row, std::string_view name, const std::optional<Spread>& spread, int digits) {
  const auto shown = [&](double Spread::* of) {
    return spread ? Json(rounded((*spread).*of, digits)) : Json();
  };
  row[fmt::format("{}_median", name)] = shown(&Spread::median);
  row[fmt::format("{}_min", name)] = shown(&Spread::min);
  row[fmt::format("{}_max", name)] = shown(&Spread::max);
}

Json to_json(const PipelinePart& part) {
  Json row{{"kind", "part"}, {"part", part.name}};
  put(row, "ns", part.ns, 3);
  put(row, "cycles", part.cycles, 3);
  return row;
}

Json to_json(const PipelineResult& result) {
  Json row{{"kind", "model"},
           {"model", result.model},
           {"workers", result.workers},
           {"threads", result.threads},
           {"predicted_mpps", rounded(result.predicted_mpps, 3)}};
  put(row, "mpps", result.mpps, 3);
  put(row, "reader_ns", result.reader_ns, 2);
  put(row, "worker_ns", result.worker_ns, 2);
  return row;
}

Json to_json(const PipelineSummary& summary) {
  return {{"kind", "summary"},
          {"model", summary.model},
          {"input_ns", rounded(summary.ns.input, 3)},
          {"ring_ns", rounded(summary.ns.ring, 3)},
          {"application_ns", rounded(summary.ns.application, 3)},
          {"workers_in_balance", rounded(workers_in_balance(summary.ns), 3)},
          {"best_workers", best_workers(summary.ns)}};
}

Json to_json(const PipelineReport& report, const PipelineOptions& options) {
  Json all = results_json("pipeline", true,
                          {{"workers", options.workers},
                           {"table", options.table},
                           {"live", options.live},
                           {"burst", options.burst}},
                          options);
  all.update(Json{{"processors", processors()},
                  {"packets", report.packets},
                  {"pages", to_string(report.pages)},
                  {"best_workers", best_workers(report.summaries.front().ns)}});
  const auto add = [&all](const auto& rows) {
    for (const auto& row : rows) all["results"].push_back(to_json(row));
  };
  add(report.parts);
  add(report.results);
  add(report.summaries);
  return all;
}

std::string mpps_cell(const std::optional<Spread>& mpps) {
  if (!mpps) return "-";
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", mpps->median, mpps->min, mpps->max);
}

std::string ns_cell(const std::optional<Spread>& ns) { return ns ? cell(*ns) : "-"; }

void print(const PipelineReport& report) {
  fmt::print(
      "a packet on one core, by part (reads of the clock included): median (least-most); cycles\n"
      "are ticks of the time-stamp counter, whose rate is not the core's\n");
  fmt::print("{:<10}{:>22}{:>22}\n", "part", "ns", "cycles");
  for (const auto& part : report.parts)
    fmt::print("{:<10}{:>22}{:>22}\n", part.name, cell(part.ns), cell(part.cycles));
  fmt::print("\n{:<18}{:>8}{:>8}{:>8}{:>12}{:>14}\n", "model", "T_IP", "T_FIFO", "T_AP",
             "in balance", "best workers");
  for (const auto& [model, ns] : report.summaries)
    fmt::print("{:<18}{:>8.1f}{:>8.1f}{:>8.1f}{:>12.2f}{:>14}\n", model, ns.input, ns.ring,
               ns.application, workers_in_balance(ns), best_workers(ns));
  fmt::print("\nMpps, and ns that the reader and a worker spend on a packet, without waiting\n");
  fmt::print("{:<18}{:>8}{:>8}{:>10}{:>20}{:>18}{:>18}\n", "model", "workers", "threads",
             "PREDICTED", "measured", "reader ns", "worker ns");
  for (const auto& r : report.results)
    fmt::print("{:<18}{:>8}{:>8}{:>10.2f}{:>20}{:>18}{:>18}\n", r.model, r.workers, r.threads,
               r.predicted_mpps, mpps_cell(r.mpps), ns_cell(r.reader_ns), ns_cell(r.worker_ns));
}

void PipelineCommand::warn_of_too_many_threads() const {
  if (!options.workers.empty() && options.workers.back() + 1 > processors())
    warn(
        fmt::format("{} workers and a reader take turns on {} processors: times include waiting "
                    "for a processor",
                    options.workers.back(), processors()));
}

int PipelineCommand::run() {
  if (auto ok = each_once("--workers", options.workers); !ok) return fail(ok.error());
  std::ranges::sort(options.workers);
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_too_many_threads();
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_pipeline(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--live", report.error()));
  if (!*report) {
    warn("interrupted before anything was finished");
    return kInterrupted;
  }
  return finish(true, to_json(**report, options), [&report] { print(**report); });
}

}  // namespace

void add_bench_pipeline(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand(
      "pipeline", "A thread that reads for all workers, predicted by arithmetic and measured");
  const auto pipeline = std::make_shared<PipelineCommand>();
  PipelineOptions& options = pipeline->options;
  add_whole(
      *command, "--workers", options.workers,
      "Numbers of workers, even if threads outnumber processors; all that leave each thread a "
      "processor, up to 8",
      1, Workers::kMost);
  command->add_option("--table", options.table, "Connection table")
      ->check(one_of(TableSchemes::names()))
      ->capture_default_str();
  add_whole(*command, "--live", options.live, "Connections of campus traffic", 1, 100'000'000);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  pipeline->add_to(*command, options);
  command->footer(
      "\nAn interrupt ends it without results; the exit status is 130.\n\n"
      "Example: millrace bench pipeline --workers 1,2,3 --json pipeline.json");
  command->callback([&run, pipeline, command] {
    if (pipeline->quick && command->count("--live") == 0) pipeline->options.live = 5'000;
    if (pipeline->quick && command->count("--repetitions") == 0) pipeline->options.repetitions = 2;
    run = [pipeline] { return pipeline->run(); };
  });
}

}  // namespace millrace::cli
