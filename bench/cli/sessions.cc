// `millrace bench sessions` measures lookups by number of sessions, as the DHash paper did.
#include "bench/sessions.h"

#include <algorithm>
#include <memory>

#include "bench_command.h"
#include "core/processors.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::SessionsOptions;
using bench::SessionsReport;
using bench::SessionsResult;
using bench::SignatureResult;

struct SessionsCommand : BenchCommand {
  SessionsOptions options;

  int run();
};

double bytes_each(std::size_t bytes, const SessionsResult& r) {
  return static_cast<double>(bytes) / static_cast<double>(r.sessions);
}

Json to_json(const SessionsResult& r) {
  Json line{{"kind", "time"},
            {"table", r.table},
            {"buckets", r.buckets ? Json(*r.buckets) : Json(nullptr)},
            {"sessions", r.sessions},
            {"cores", r.cores},
            {"live", r.live}};
  line.update(spread_json("mpps", r.mpps, 3));
  line.update(spread_json(r.ns_per_lookup));
  line.update(Json{{"bytes_per_session", rounded(bytes_each(r.index_bytes + r.record_bytes, r))},
                   {"index_bytes_per_session", rounded(bytes_each(r.index_bytes, r))},
                   {"pages", to_string(r.pages)}});
  return line;
}

Json to_json(const SignatureResult& r) {
  return {{"kind", "signature"},
          {"table", r.table},
          {"major_location", r.major_location},
          {"false_positive_rate", rounded(r.statistics.false_positive_rate(), 9)},
          {"first_hit_ratio", rounded(r.statistics.first_hit_ratio(), 4)},
          {"comparisons_a_lookup", rounded(r.statistics.comparisons_a_lookup(), 4)},
          {"share_in_lists", rounded(r.statistics.share_in_lists(), 6)}};
}

Json to_json(const SessionsReport& report, const SessionsOptions& options) {
  Json all = results_json("sessions", report.complete,
                          {{"tables", options.tables},
                           {"buckets", options.buckets},
                           {"sessions", options.sessions},
                           {"cores", options.cores},
                           {"burst", options.burst},
                           {"budget_ms", options.budget_ms},
                           {"signature_sessions", options.signature_sessions}},
                          options);
  all["processors"] = processors();
  for (const auto& result : report.results) all["results"].push_back(to_json(result));
  for (const auto& signature : report.signatures) all["results"].push_back(to_json(signature));
  return all;
}

void print_times(const SessionsReport& report) {
  fmt::print(
      "Mpps of all cores, and ns a look-up of one core: median (least-most). Between two look-ups\n"
      "of a session comes one of each other session of the same core. index, bytes: bytes a\n"
      "session, of the index and of the whole table\n");
  fmt::print("{:>10}{:>7}  {:18}{:>22}{:>22}{:>8}{:>8}\n", "sessions", "cores", "table", "Mpps",
             "ns each", "index", "bytes");
  for (const auto& r : report.results) {
    fmt::print("{:>10}{:>7}  {:18}{:>22}{:>22}{:>8.1f}{:>8.1f}\n", r.sessions, r.cores, r.table,
               fmt::format("{:.2f} ({:.2f}-{:.2f})", r.mpps.median, r.mpps.min, r.mpps.max),
               cell(r.ns_per_lookup), bytes_each(r.index_bytes, r),
               bytes_each(r.index_bytes + r.record_bytes, r));
  }
}

void print_signatures(const SessionsReport& report, const SessionsOptions& options) {
  if (report.signatures.empty()) return;
  fmt::print("\n{} sessions like a site's, ten a bucket, each looked up once in each direction\n",
             options.signature_sessions);
  fmt::print("{:16}{:>16}{:>18}{:>14}{:>14}{:>12}\n", "table", "major location", "false positives",
             "first hits", "comparisons", "in lists");
  for (const auto& [table, major_location, counted] : report.signatures) {
    fmt::print("{:16}{:>16}{:>16.4f} %{:>12.1f} %{:>14.2f}{:>10.3f} %\n", table,
               major_location ? "with" : "without", 100 * counted.false_positive_rate(),
               100 * counted.first_hit_ratio(), counted.comparisons_a_lookup(),
               100 * counted.share_in_lists());
  }
}

int SessionsCommand::run() {
  for (const auto& ok :
       {each_once("--table", options.tables), each_once("--buckets", options.buckets),
        each_once("--sessions", options.sessions), each_once("--cores", options.cores)}) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(std::ranges::max(options.cores), "readers");
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_sessions(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--sessions", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&] {
    print_times(*report);
    print_signatures(*report, options);
  });
}

}  // namespace

void add_bench_sessions(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("sessions", "Look-ups, by number of sessions");
  const auto sessions = std::make_shared<SessionsCommand>();
  SessionsOptions& options = sessions->options;
  const auto* table =
      add_names(*command, "--table", options.tables,
                "Tables, named as in `bench tables`; all dhash, chained, race", entrant_names())
          ->type_name("NAME,...");
  command->get_formatter()->label(table->get_type_name(), "NAME,...");
  add_whole(*command, "--buckets", options.buckets, "Also chained with N buckets, as chained/N", 1,
            100'000'000);
  add_whole(*command, "--sessions", options.sessions, "Numbers of sessions; 262144,524288,1048576",
            1000, 10'000'000);
  add_whole(*command, "--cores", options.cores,
            "Numbers of cores among which the sessions are divided; 1 and 2", 1, Workers::kMost);
  add_whole(*command, "--burst", options.burst, "Packets a burst; 1: without bursts", 1, 64);
  sessions->add_to(*command, options);
  command->footer(
      "\nA trial looks up sessions for about 0.2 s, in whole rounds of a core's sessions if one\n"
      "fits. Filling long chains takes longer. docs/dhash.md compares with the paper.\n\n"
      "An interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\n"
      "Example: millrace bench sessions --buckets 1040,10000,100000,1000000 --json sessions.json");
  command->callback([&run, sessions, command] {
    if (sessions->quick) {
      sessions->options.budget_ms = 5;
      sessions->options.signature_sessions = 50'000;
    }
    if (sessions->quick && command->count("--sessions") == 0) sessions->options.sessions = {20'000};
    if (sessions->quick && command->count("--repetitions") == 0) sessions->options.repetitions = 2;
    run = [sessions] { return sessions->run(); };
  });
}

}  // namespace millrace::cli
