// `millrace bench pair` measures NAT alone, and with a copy of all sessions at another server.
#include "bench/pair.h"

#include <memory>

#include "bench/nat_port.h"
#include "bench_command.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::PairOptions;
using bench::PairReport;
using bench::PairResult;

struct PairCommand : BenchCommand {
  PairOptions options;

  int run();
};

Json to_json(const PairResult& r, const PairOptions& options) {
  Json line{{"contender", r.is_copied ? "copied" : "alone"}, {"sessions", options.sessions}};
  line.update(spread_json("begun_mpps", r.begun, 4));
  line.update(spread_json("established_mpps", r.established, 4));
  if (!r.is_copied) return line;
  line["bytes_a_session"] = rounded(r.bytes_a_session, 1);
  line.update(spread_json("copying_s", r.copying_s, 3));
  line.update(spread_json("while_copying_mpps", r.while_copying, 4));
  line["copying_bytes"] = r.copying_bytes;
  return line;
}

Json to_json(const PairReport& report, const PairOptions& options) {
  Json all = results_json(
      "pair", report.complete,
      {{"sessions", options.sessions}, {"customers", options.customers}, {"burst", options.burst}},
      options);
  for (const auto& result : report.results) all["results"].push_back(to_json(result, options));
  if (report.results.size() == 2) {
    all.update(spread_json("of_begun", report.of_begun, 3));
    all.update(spread_json("of_established", report.of_established, 3));
  }
  return all;
}

std::string cell_of(const Spread& of) {
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", of.median, of.min, of.max);
}

void print(const PairReport& report) {
  fmt::print(
      "NAT on one core; median (least-most). new: million sessions a second, a packet and its "
      "reply;\n"
      "established: Mpps, half each way\n"
      "{:<8}{:>20}{:>20}\n",
      "", "new", "established");
  for (const auto& r : report.results)
    fmt::print("{:<8}{:>20}{:>20}\n", r.is_copied ? "copied" : "alone", cell_of(r.begun),
               cell_of(r.established));
  if (report.results.size() < 2) return;
  fmt::print("{:<8}{:>20}{:>20}\n", "ratio", cell_of(report.of_begun),
             cell_of(report.of_established));
  const PairResult& copied = report.results.back();
  fmt::print(
      "{:.0f} bytes a session to the other server. A new one got all in {} s, {:.0f} MB,\n"
      "with established packets at {} Mpps meanwhile\n",
      copied.bytes_a_session, cell_of(copied.copying_s), copied.copying_bytes / 1e6,
      cell_of(copied.while_copying));
}

int PairCommand::run() {
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(2, "servers");
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_pair(options, live.progress());
  live.clear();
  if (!report) return fail(report.error());
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_pair(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("pair", "NAT whose sessions another server has, too ([pair])");
  const auto pair = std::make_shared<PairCommand>();
  PairOptions& options = pair->options;
  add_whole(*command, "--sessions", options.sessions, "Sessions", 1, 20'000'000);
  add_whole(*command, "--customers", options.customers, "Customers, who have equally many sessions",
            1, bench::kMostCustomers);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  pair->add_to(*command, options);
  command->footer(
      "\nThe other server runs on the same core: it gets a turn every 5 ms, which is not\n"
      "counted.\n\n"
      "Example: millrace bench pair --sessions 5000000 --json pair.json");
  command->callback([&run, pair, command] {
    if (pair->quick && command->count("--sessions") == 0) pair->options.sessions = 20'000;
    if (pair->quick && command->count("--customers") == 0) pair->options.customers = 100;
    if (pair->quick && command->count("--repetitions") == 0) pair->options.repetitions = 1;
    run = [pair] { return pair->run(); };
  });
}

}  // namespace millrace::cli
