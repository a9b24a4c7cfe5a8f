// `millrace schemes`: what can be chosen by name, and what goes with what.
#include "conntrack/schemes.h"

#include <fmt/format.h>

#include "commands.h"
#include "function/balance/scheduler.h"
#include "shard/spread.h"

namespace millrace::cli {
namespace {

void print(std::string_view axis, const std::vector<SchemeDescription>& schemes) {
  fmt::print("{}\n", axis);
  for (const auto& scheme : schemes) fmt::print("  {:<22}{}\n", scheme.name, scheme.summary);
}

template <class Kind>
void print_named(std::string_view axis, std::span<const Kind> kinds) {
  fmt::print("{}\n", axis);
  for (const auto& kind : kinds) fmt::print("  {:<22}{}\n", kind.name, kind.what);
}

}  // namespace

void add_schemes(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "schemes", "List what can be chosen by name: tables, sharing, ageing, ...");
  command->footer("\nExample: millrace schemes");
  command->callback([&run] {
    run = [] {
      print("--table", TableSchemes::descriptions());
      print("--sharing", SharingSchemes::descriptions());
      print("--ageing", AgeingSchemes::descriptions());
      fmt::print(
          "Any table goes with any ageing scheme, and with the sharing schemes sharded, spinlock "
          "and\n"
          "mutex; the others go with the table that their name or description has.\n");
      print_named("--spread", spreads());
      print_named("scheduler (of a service, in the configuration)", schedulers());
      fmt::print("millrace bench schemes lists the tables that only benchmarks have.\n");
      return kDone;
    };
  });
}

}  // namespace millrace::cli
