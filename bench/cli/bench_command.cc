// The command `millrace bench`, and code that its questions share.
#include "bench_command.h"
#include "bench/arrivals.h"
#include "bench/contender.h"
#include "bench/machine.h"
#include "command_line/handed_over.h"
#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "core/processors.h"

namespace millrace::cli {

void BenchCommand::add_common_to(CLI::App& command, bench::Settings& settings) {
  command
      .add_option_function<std::string>(
          "--pages",
          [&settings](const std::string& name) {
            settings.pages = pages_named(name).value_or(settings.pages);
          },
          "Best kind of pages to try: huge, transparent or small")
      ->check(one_of({"huge", "transparent", "small"}))
      ->default_str(std::string(to_string(settings.pages)));
  command.add_option("--seed", settings.seed, "Seed of everything random")
      ->check(not_negative())
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--json", json, "Write results as JSON; - in place of the table")
      ->check(not_empty())
      ->type_name("FILE");
  command.add_flag("--quiet", quiet, "No progress, no warnings");
}

void BenchCommand::add_to(CLI::App& command, bench::Settings& settings) {
  add_whole(command, "--repetitions", settings.repetitions, "Trials of each contender", 1, 1000);
  add_common_to(command, settings);
  command.add_flag("--quick", quick, "A small size only: does it still work?");
}

Result<void> BenchCommand::begin() const {
  if (!json.empty()) {
    if (auto ok = check_writable(json); !ok) return ok;
  }
  catch_interrupts();
  return {};
}

void BenchCommand::warn(std::string_view message) const {
  if (!quiet) say(fmt::format("millrace: warning: {}\n", message));
}

void BenchCommand::warn_of_turns(unsigned threads, std::string_view called) const {
  if (threads > processors())
    warn(fmt::format("{} {} take turns on {} processors: times include waiting for a processor",
                     threads, called, processors()));
}

bool BenchCommand::left_nothing(bool complete, bool none) const {
  if (complete) return false;
  warn(none ? "interrupted before anything was finished"
            : "interrupted: the finished results follow");
  return none;
}

int BenchCommand::finish(bool complete, const Json& results,
                         const std::function<void()>& print) const {
  if (!json.empty()) {
    if (auto ok = write_whole(json, to_text(results)); !ok) return fail(ok.error());
  }
  if (json != "-") print();
  return complete ? kDone : kInterrupted;
}

Json results_json(std::string_view suite, bool complete, Json options,
                  const bench::Settings& settings) {
  options.update(Json{{"repetitions", settings.repetitions},
                      {"seed", settings.seed},
                      {"pages", to_string(settings.pages)}});
  return {{"suite", suite},
          {"complete", complete},
          {"options", std::move(options)},
          {"machine", bench::describe_machine()},
          {"results", Json::array()}};
}

std::vector<std::string> entrant_names() {
  std::vector<std::string> names;
  for (const auto& entrant : bench::entrants()) names.emplace_back(entrant.name);
  return names;
}

Json spread_json(const std::string& name, const Spread& spread, int digits) {
  return {{name + "_median", rounded(spread.median, digits)},
          {name + "_min", rounded(spread.min, digits)},
          {name + "_max", rounded(spread.max, digits)}};
}

std::string short_ns(double ns) { return fmt::format("{:.{}f}", ns, ns < 99.95 ? 1 : 0); }

std::string cell(const Spread& spread) {
  return fmt::format("{} ({}-{})", short_ns(spread.median), short_ns(spread.min),
                     short_ns(spread.max));
}

std::string short_us(double us) {
  using bench::LatencyBins;
  return us < LatencyBins::kBeyond ? fmt::format("{:.1f}", us)
                                   : fmt::format("{}+", LatencyBins::kBeyond);
}

Error in_terms_of(std::string_view option, Error error) {
  constexpr std::string_view kCapacity = "the capacity";
  const auto at = error.message.find(kCapacity);
  if (at != std::string::npos) error.message.replace(at, kCapacity.size(), option);
  return error;
}

void add_bench(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(std::string(kBench.name), std::string(kBench.what));
  command->require_subcommand(1);
  command->footer("\nExample: millrace bench path --quick");
  add_bench_advise(*command, run);
  add_bench_ageing(*command, run);
  add_bench_chain(*command, run);
  add_bench_level(*command, run);
  add_bench_lines(*command, run);
  add_bench_nat(*command, run);
  add_bench_overload(*command, run);
  add_bench_pair(*command, run);
  add_bench_path(*command, run);
  add_bench_rate(*command, run);
  add_bench_rules(*command, run);
  add_bench_pipeline(*command, run);
  add_bench_tables(*command, run);
  add_bench_scaling(*command, run);
  add_bench_sessions(*command, run);
  add_bench_schemes(*command, run);
}

}  // namespace millrace::cli
