// `millrace schemes`: lists the names that can be chosen, and which of them go together.
#include "conntrack/schemes.h"

#include <fmt/format.h>

#include "commands.h"
#include "function/kinds.h"
#include "shard/spread.h"

namespace millrace::cli {
namespace {

void print(std::string_view axis, const std::vector<SchemeDescription>& schemes) {
  fmt::print("{}\n", axis);
  for (const auto& scheme : schemes) fmt::print("  {:<22}{}\n", scheme.name, scheme.summary);
}

void print_names(const FunctionNames& of) {
  fmt::print("{}\n", of.title);
  for (const auto& [name, what] : of.names) fmt::print("  {:<22}{}\n", name, what);
}

FunctionNames all_spreads() {
  FunctionNames all{"--spread", {}};
  for (const auto& kind : spreads()) all.names.emplace_back(kind.name, kind.what);
  return all;
}

FunctionNames all_functions() {
  FunctionNames all{"function (in the configuration)", {}};
  for (const FunctionKind* const kind : kinds()) all.names.emplace_back(kind->name, kind->summary);
  return all;
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
          "mutex; each other sharing scheme goes only with the table in its name or description.\n"
          "With the table race, and several workers to which the kernel brings packets, the "
          "default\n"
          "is lock-free-race, unless shards move (docs/sharing.md).\n");
      print_names(all_spreads());
      print_names(all_functions());
      for (const FunctionKind* const kind : kinds()) {
        for (const FunctionNames& of : kind->names()) print_names(of);
      }
      fmt::print("millrace bench schemes lists the tables that only benchmarks have.\n");
      return kDone;
    };
  });
}

}  // namespace millrace::cli
