// `millrace bench schemes` lists the tables that only benchmarks have.
#include <fmt/format.h>

#include "bench/contenders.h"
#include "bench_command.h"

namespace millrace::cli {
namespace {

using BenchOnly = Joined<TableVariants, bench::PeerTables>::Type;

}  // namespace

void add_bench_schemes(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("schemes", "List the tables that only benchmarks have");
  command->footer("\nExample: millrace bench schemes");
  command->callback([&run] {
    run = [] {
      fmt::print("Tables for --table of millrace bench tables, lines and sessions only:\n");
      for (const auto& scheme : BenchOnly::descriptions())
        fmt::print("  {:<22}{}\n", scheme.name, scheme.summary);
      return kDone;
    };
  });
}

}  // namespace millrace::cli
