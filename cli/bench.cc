// `millrace bench`: measures on this machine, in one run, what the study compares.
#include <unistd.h>

#include <cmath>

#include "bench_command.h"
#include "output.h"

namespace millrace::cli {

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

Json spread_json(const Spread& spread) {
  return {{"ns_median", rounded(spread.median)},
          {"ns_min", rounded(spread.min)},
          {"ns_max", rounded(spread.max)}};
}

std::string cell(const Spread& spread) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", spread.median, spread.min, spread.max);
}

std::function<void(const std::string&)> progress_line(bool quiet) {
  const bool show = !quiet && ::isatty(STDERR_FILENO) != 0;
  return [show](const std::string& what) {
    if (show) say(fmt::format("\r\033[K{}", what));
  };
}

void add_bench(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("bench", "Measure on this machine");
  command->require_subcommand(1);
  command->footer("\nExample: millrace bench path --quick");
  add_bench_path(*command, run);
  add_bench_tables(*command, run);
}

}  // namespace millrace::cli
