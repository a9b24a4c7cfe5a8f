// `millrace bench lines` counts the cache lines that an operation of each table touches.
#include "bench/lines.h"

#include <algorithm>
#include <memory>

#include "bench/contender.h"
#include "bench_command.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::LinesOptions;
using bench::LinesReport;
using bench::LinesResult;

constexpr std::size_t kKinds = 5;  // kinds of operation, which follow one another in the results

struct LinesCommand : BenchCommand {
  LinesOptions options;

  int run();
};

Json to_json(const LinesResult& r) {
  return {{"table", r.table},
          {"operation", r.operation},
          {"bits", r.bits},
          {"load", rounded(r.load, 4)},
          {"at_maximum", r.at_maximum},
          {"operations", r.operations},
          {"lines_mean", rounded(r.lines_mean, 3)},
          {"lines_median", r.lines_median},
          {"lines_p99", r.lines_p99},
          {"lines_max", r.lines_max},
          {"head_lines_mean", rounded(r.head_lines_mean, 3)},
          {"prefetched_only_mean", rounded(r.prefetched_only_mean, 3)},
          {"instructions_mean", rounded(r.instructions_mean, 1)},
          {"undecoded", r.undecoded},
          {"cut", r.cut}};
}

Json to_json(const LinesReport& report, const LinesOptions& options) {
  Json all = results_json("lines", report.complete,
                          {{"tables", options.tables},
                           {"bits", options.bits},
                           {"loads", options.loads},
                           {"at_maximum", options.at_maximum},
                           {"operations", options.operations}},
                          options);
  all["left_out"] = report.left_out;
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  return all;
}

std::string figure(const LinesResult& r) {
  return fmt::format("{:.2f} {:.0f}/{:.0f}", r.lines_mean, r.lines_p99, r.lines_max);
}
std::string instructions(const LinesResult& r) {
  return fmt::format("{:.0f}", r.instructions_mean);
}
std::string in_vain(const LinesResult& r) { return fmt::format("{:.2f}", r.prefetched_only_mean); }

/// Prints a line for each table and load, with a column for each kind of operation.
template <class Shown>
void print_by_operation(const LinesReport& report, std::size_t width, Shown&& shown) {
  fmt::print("{:16}{:>6}", "table", "load");
  for (std::size_t i = 0; i < kKinds; ++i) fmt::print("{:>{}}", report.results[i].operation, width);
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    const LinesResult& r = report.results[i];
    if (i % kKinds == 0) fmt::print("\n{:16}{:>6.2f}", r.table, r.load);
    fmt::print("{:>{}}", shown(r), width);
  }
  fmt::print("\n");
}

void print(const LinesReport& report) {
  fmt::print("cache lines that one operation touches: mean, 99th percentile/most; 2^{} slots\n",
             report.results[0].bits);
  print_by_operation(report, 15, figure);
  fmt::print("\ninstructions of one operation: mean\n");
  print_by_operation(report, 8, instructions);
  fmt::print("\nlines that one operation prefetches and does not touch: mean\n");
  print_by_operation(report, 8, in_vain);
  std::size_t undecoded = 0;
  std::size_t cut = 0;
  for (const auto& r : report.results) {
    undecoded += r.undecoded;
    cut += r.cut;
  }
  if (undecoded > 0)
    fmt::print("{} instructions could not be decoded: their lines are missing\n", undecoded);
  if (cut > 0) fmt::print("{} operations were too long to be followed to their end\n", cut);
}

int LinesCommand::run() {
  for (const auto& ok :
       {each_once("--table", options.tables), each_once("--load", options.loads)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  LiveTable live(quiet, Unit::lines);
  const auto report = bench::run_lines(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--bits", report.error()));
  for (const auto& line : report->left_out) warn(line);
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_lines(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("lines", "Cache lines and instructions of one operation");
  const auto lines = std::make_shared<LinesCommand>();
  LinesOptions& options = lines->options;
  std::vector<std::string> names;
  for (const auto& entrant : bench::entrants()) names.emplace_back(entrant.name);
  const auto* table = add_names(*command, "--table", options.tables,
                                "Tables, named as in `bench tables`; all", names)
                          ->type_name("NAME,...");
  command->get_formatter()->label(table->get_type_name(), "NAME,...");
  add_whole(*command, "--bits", options.bits, "Slots: 2 to this power", 10, 22);
  command->add_option("--load", options.loads, "Live entries a slot; 0.75")
      ->delimiter(',')
      ->check(number(0.05, 1))
      ->type_name("X,...");
  command->add_flag("--at-maximum", options.at_maximum,
                    "Measure each table at the load that it promises, too");
  add_whole(*command, "--operations", options.operations, "Operations of each kind",
            LinesOptions::kLeastOperations, 100'000);
  lines->add_common_to(*command, options);
  command->add_flag("--quick", lines->quick, "A small size only: does it still work?");
  command->footer(
      "\nEach operation is stepped through, on x86-64 only. Nothing is timed: two runs agree.\n"
      "docs/lines.md says what is counted.\n\n"
      "An interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\nExample: millrace bench lines --table race,std --json lines.json");
  command->callback([&run, lines, command] {
    if (lines->quick && command->count("--bits") == 0) lines->options.bits = 10;
    if (lines->quick && command->count("--operations") == 0)
      lines->options.operations = LinesOptions::kLeastOperations;
    run = [lines] { return lines->run(); };
  });
}

}  // namespace millrace::cli
