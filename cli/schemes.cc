// `millrace schemes`: what can be chosen by name, and what goes with what.
#include "conntrack/schemes.h"

#include <fmt/format.h>

#include "bench/contenders.h"
#include "command.h"
#include "function/balance/scheduler.h"

namespace millrace::cli {
namespace {

using BenchOnly = Joined<TableVariants, bench::PeerTables>::Type;

void print(std::string_view axis, const std::vector<SchemeDescription>& schemes) {
  fmt::print("{}\n", axis);
  for (const auto& scheme : schemes) fmt::print("  {:<22}{}\n", scheme.name, scheme.summary);
}

void print_schedulers() {
  fmt::print("scheduler (of a service, in the configuration)\n");
  for (const auto& kind : schedulers()) fmt::print("  {:<22}{}\n", kind.name, kind.what);
}

}  // namespace

void add_schemes(CLI::App& app, Run& run) {
  auto* command =
      app.add_subcommand("schemes", "List tables, sharing and ageing schemes, and schedulers");
  command->footer("\nExample: millrace schemes");
  command->callback([&run] {
    run = [] {
      print("--table", TableSchemes::descriptions());
      print("--table of millrace bench tables only", BenchOnly::descriptions());
      print("--sharing", SharingSchemes::descriptions());
      print("--ageing", AgeingSchemes::descriptions());
      fmt::print("Any table goes with any sharing and any ageing scheme.\n");
      print_schedulers();
      return kDone;
    };
  });
}

}  // namespace millrace::cli
