// What the benchmarks' commands share.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/spread.h"
#include "command.h"

namespace millrace::cli {

using Json = nlohmann::ordered_json;
using bench::Spread;

void add_bench_path(CLI::App& bench, Run& run);
void add_bench_tables(CLI::App& bench, Run& run);

/// To that many decimal places, as results are written.
double rounded(double value, int digits = 2);
/// ns_median, ns_min, ns_max
Json spread_json(const Spread& spread);
/// "median (least-most)"
std::string cell(const Spread& spread);
/// Shows what is under way on one line of a terminal's standard error; an empty text clears it.
std::function<void(const std::string&)> progress_line(bool quiet);

}  // namespace millrace::cli
