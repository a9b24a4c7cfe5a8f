// Code that the commands of `millrace-bench` share.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/settings.h"
#include "bench/spread.h"
#include "command_line/command.h"
#include "command_line/output.h"
#include "command_line/validators.h"
#include "core/json.h"
#include "millrace/types.h"

namespace millrace::cli {

using bench::Spread;

// Each of these functions adds a command of `millrace-bench`, or a question of `bench`. Each
// question has a file of its own.
void add_advise(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_bench_advise(CLI::App& bench, Run& run);
void add_bench_ageing(CLI::App& bench, Run& run);
void add_bench_chain(CLI::App& bench, Run& run);
void add_bench_level(CLI::App& bench, Run& run);
void add_bench_lines(CLI::App& bench, Run& run);
void add_bench_nat(CLI::App& bench, Run& run);
void add_bench_overload(CLI::App& bench, Run& run);
void add_bench_pair(CLI::App& bench, Run& run);
void add_bench_path(CLI::App& bench, Run& run);
void add_bench_rate(CLI::App& bench, Run& run);
void add_bench_rules(CLI::App& bench, Run& run);
void add_bench_pipeline(CLI::App& bench, Run& run);
void add_bench_scaling(CLI::App& bench, Run& run);
void add_bench_schemes(CLI::App& bench, Run& run);
void add_bench_sessions(CLI::App& bench, Run& run);
void add_bench_tables(CLI::App& bench, Run& run);

/// The common options and output of all commands that measure.
struct BenchCommand {
  std::string json;
  bool quick = false;
  bool quiet = false;

  /// Adds --pages, --seed, --json and --quiet.
  void add_common_to(CLI::App& command, bench::Settings& settings);
  /// Adds the options of `add_common_to`, and --repetitions and --quick.
  void add_to(CLI::App& command, bench::Settings& settings);
  /// Checks that the results can be written. From then on a first interrupt no longer ends the
  /// process at once. Errors: the file for the results cannot be written.
  Result<void> begin() const;
  void warn(std::string_view message) const;
  /// Warns if there are fewer processors than threads.
  void warn_of_turns(unsigned threads, std::string_view called = "workers") const;
  /// Warns if an interrupt ended the measurement (not `complete`). Returns true if an interrupt
  /// came before there were results (`none`).
  bool left_nothing(bool complete, bool none) const;
  /// Writes the results to the file of --json, if there is one, then prints them, unless that file
  /// is standard output. Returns the exit status. The file comes first, because a reader may close
  /// standard output at any time.
  int finish(bool complete, const Json& results, const std::function<void()>& print) const;
};

/// Returns the members that all results have; `results` is an empty list.
Json results_json(std::string_view suite, bool complete, Json options,
                  const bench::Settings& settings);

/// Adds an option with a whole number, `from` to `to`.
template <class T>
void add_whole(CLI::App& command, const std::string& name, T& value, const std::string& text,
               std::uint64_t from, std::uint64_t to) {
  command.add_option(name, value, text)
      ->check(whole_number(from, to))
      ->capture_default_str()
      ->type_name("N");
}
/// Adds an option with a list of whole numbers, each `from` to `to`.
template <class T>
void add_whole(CLI::App& command, const std::string& name, std::vector<T>& values,
               const std::string& text, std::uint64_t from, std::uint64_t to) {
  command.add_option(name, values, text)
      ->delimiter(',')
      ->check(whole_number(from, to))
      ->type_name("N,...");
}
inline CLI::Option* add_names(CLI::App& command, const std::string& name,
                              std::vector<std::string>& values, const std::string& text,
                              std::vector<std::string> names) {
  return command.add_option(name, values, text)->delimiter(',')->check(one_of(std::move(names)));
}

/// Returns the names of all tables that take part in benchmarks, with variants and peers.
std::vector<std::string> entrant_names();

/// Returns an object with NAME_median, NAME_min and NAME_max.
Json spread_json(const std::string& name, const Spread& spread, int digits = 2);
inline Json spread_json(const Spread& nanoseconds) { return spread_json("ns", nanoseconds); }
/// Formats nanoseconds, with one decimal place below 100.
std::string short_ns(double ns);
/// Returns "median (least-most)".
std::string cell(const Spread& spread);
/// Returns a latency in microseconds as text: "4096+" for `LatencyBins::kBeyond` or more.
std::string short_us(double us);

inline std::unexpected<Error> misused(std::string message) {
  return std::unexpected(Error{std::move(message), Error::Kind::usage});
}

/// Checks that no value is in the list twice: such a value would be measured twice, under one
/// heading. Errors (usage): a value that is in the list twice.
template <class T>
Result<void> each_once(std::string_view option, const std::vector<T>& values) {
  std::set<std::string> seen;
  for (const T& value : values) {
    std::string shown;
    if constexpr (std::is_floating_point_v<T>) {
      shown = fmt::format("{}", rounded(value, 4));
    } else {
      shown = fmt::format("{}", value);
    }
    if (seen.insert(shown).second) continue;
    return misused(fmt::format("{}: {} twice{}: give each value once", option, shown,
                               std::is_floating_point_v<T> ? " (four decimals count)" : ""));
  }
  return {};
}

/// Replaces "the capacity" in an error of the library by `option`, the option that sets it.
Error in_terms_of(std::string_view option, Error error);

}  // namespace millrace::cli
