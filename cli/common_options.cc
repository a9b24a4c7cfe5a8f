#include "common_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "command_line/output.h"
#include "command_line/validators.h"
#include "conntrack/schemes.h"
#include "shard/spread.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

constexpr double kMaxTimeoutSeconds = static_cast<double>(Config::Ageing::kMaxTimeout);

/// Accepts the names of tables; the message about a wrong name also says where the tables that only
/// benchmarks have are listed.
CLI::Validator table_name() {
  const CLI::Validator one = one_of(TableSchemes::names());
  return CLI::Validator(
      [one](std::string& name) {
        std::string wrong = one(name);
        if (!wrong.empty())
          wrong += "; others take part in benchmarks only: millrace bench schemes";
        return wrong;
      },
      one.get_description());
}

std::uint32_t milliseconds(double seconds) {
  return static_cast<std::uint32_t>(std::max(1.0, std::round(seconds * 1000.0)));
}

}  // namespace

void CommonOptions::add_to(CLI::App& command) {
  command.add_option("--table", table, "Table scheme (millrace schemes lists them); race")
      ->check(table_name());
  command.add_option("--sharing", sharing, "How workers share tables; sharded")
      ->check(one_of(SharingSchemes::names()));
  command.add_option("--ageing", ageing, "How idle connections are found; wheel")
      ->check(one_of(AgeingSchemes::names()));
  command
      .add_option("--capacity", capacity,
                  "IPv4 connections promised, and an eighth as many IPv6 ones; 1000000")
      ->check(whole_number(1, Config::Table::kMaxCapacity))
      ->type_name("N");
  command
      .add_option("--timeout", timeout_s, "Seconds until an idle connection ends, in every state")
      ->check(number(0.001, kMaxTimeoutSeconds))
      ->type_name("S");
  command
      .add_option("--workers", workers,
                  "Worker threads, one per processor while there are enough; 1")
      ->check(whole_number(1, Workers::kMost))
      ->type_name("N");
  command.add_option("--spread", spread, "How packets are spread over workers; keyed")
      ->check(one_of(spread_names()));
  command.add_option("--pages", pages, "Best kind of pages to try: huge, transparent or small")
      ->check(one_of({"huge", "transparent", "small"}))
      ->capture_default_str();
  command.add_option("--seed", seed, "Seed of everything random; drawn if left out")
      ->check(not_negative())
      ->type_name("N");
  command.add_flag("--quiet", quiet, "No progress, no warnings");
}

void CommonOptions::apply_to(Config& config) const {
  if (table) config.table.scheme = *table;
  if (sharing) config.sharing = *sharing;
  if (workers) config.workers = *workers;
  if (spread) config.spread.scheme = *spread;
  if (ageing) config.ageing.scheme = *ageing;
  if (capacity) {
    config.table.capacity = *capacity;
  }
}

LineConfig CommonOptions::line_config(const Config& config) const {
  LineConfig line = millrace::line_config(config);
  line.pages = pages_named(pages).value_or(Pages::huge);
  line.secret = seed ? Secret::from_seed(*seed) : Secret::random();
  if (timeout_s) line.timeouts = Timeouts::all(milliseconds(*timeout_s));
  return line;
}

FunctionRun CommonOptions::function_run(const Config& config) const {
  FunctionRun run = millrace::function_run(config);
  if (seed) run.secret = Secret::from_seed(*seed ^ 0x66756e6374696f6e);
  if (timeout_s) run.quiet_ms = std::max(milliseconds(*timeout_s), run.quiet_ms);
  return run;
}

Secret CommonOptions::spread_secret() const {
  // This secret differs from that of the tables: otherwise all keys of a worker would share bits of
  // the hash that places them in the worker's table.
  return seed ? Secret::from_seed(*seed ^ 0x7370726561640000) : Secret::random();
}

std::string counts_text(std::span<const FunctionFacts::Count> counts) {
  std::string text;
  for (const auto& [what, count] : counts)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, what, count == 1 ? "" : "s");
  return text;
}

SchemeNames scheme_names() {
  return {TableSchemes::names(), SharingSchemes::names(), AgeingSchemes::names()};
}

}  // namespace millrace::cli
