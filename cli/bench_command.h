// What the benchmarks' commands share.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bench/progress.h"
#include "bench/spread.h"
#include "command.h"
#include "millrace/types.h"

namespace millrace::cli {

using Json = nlohmann::ordered_json;
using bench::Spread;

void add_bench_path(CLI::App& bench, Run& run);
void add_bench_scaling(CLI::App& bench, Run& run);
void add_bench_tables(CLI::App& bench, Run& run);

/// To that many decimal places, as results are written.
double rounded(double value, int digits = 2);
/// ns_median, ns_min, ns_max
Json spread_json(const Spread& spread);
/// Nanoseconds: one decimal place below 100, none above.
std::string short_ns(double ns);
/// "median (least-most)"
std::string cell(const Spread& spread);

/// Shows what is under way on one line of a terminal's standard error; an empty text clears it.
/// Ends the benchmark once it is interrupted.
bench::Progress progress_line(bool quiet);

/// The library's errors speak of a capacity; these commands have another word for it.
Error in_terms_of(std::string_view option, Error error);

}  // namespace millrace::cli
