// `millrace bench tables` measures every table, beside the machine's limit.
#include "bench/tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "bench_command.h"
#include "command_line/huge_pages.h"
#include "command_line/output.h"
#include "command_line/validators.h"
#include "core/available_memory.h"
#include "live_table.h"
#include "tables_report.h"

namespace millrace::cli {
namespace {

using bench::TablesOptions;
using bench::TablesPlan;

struct TablesCommand : BenchCommand {
  TablesOptions options;
  bool with_maximum = false;  ///< --at-maximum was given, which is the default
  bool no_maximum = false;

  Result<int> run();

 private:
  Result<void> check() const;
  void announce(const TablesPlan& plan) const;
};

Result<void> TablesCommand::check() const {
  if (with_maximum && no_maximum)
    return misused("--at-maximum and --no-maximum contradict each other: give one of them");
  if (auto ok = each_once("--table", options.tables); !ok) return ok;
  if (auto ok = each_once("--bits", options.bits); !ok) return ok;
  if (auto ok = each_once("--load", options.loads); !ok) return ok;
  if (auto ok = each_once("--key-bytes", options.key_bytes); !ok) return ok;
  if (auto ok = each_once("--burst", options.bursts); !ok) return ok;
  return begin();
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(seconds, 1.0));
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

/// Prints before the measurement how long it will take, and how much memory it needs.
void TablesCommand::announce(const TablesPlan& plan) const {
  const std::size_t needed = plan.memory_bytes();
  if (!quiet) {
    say(fmt::format("{} {} of tables: about {}, and up to {:.1f} GiB of memory\n", plan.trials(),
                    plan.trials() == 1 ? "trial" : "trials", duration_text(plan.seconds()),
                    static_cast<double>(needed) / (1 << 30)));
  }
  for (const auto& line : plan.left_out) warn(line);
  if (const auto there = available_memory_bytes(); needed > there) {
    warn(fmt::format("{:.1f} GiB of memory are available: the largest size may fail",
                     static_cast<double>(there) / (1 << 30)));
  }
}

/// Returns a warning if tables lie on worse pages than wanted, or not all on the same kind.
std::optional<std::string> pages_warning(const TablesReport& report) {
  const Pages asked = report.plan->options.pages;
  std::set<Pages> obtained;
  std::size_t most = 0;
  for (const auto& r : report.result.operations) {
    const auto bytes = static_cast<std::size_t>(r.bytes_per_entry * static_cast<double>(r.live));
    if (bytes <= 2 * kWorthHugePages) continue;  // a table's pieces may be smaller than a huge page
    obtained.insert(r.pages);
    most = std::max(most, bytes);
  }
  if (obtained.empty() || obtained == std::set{asked}) return std::nullopt;
  std::vector<std::string_view> kinds;
  for (const Pages pages : obtained) kinds.push_back(to_string(pages));
  return fmt::format("tables lie on {} pages, {}: {}", fmt::join(kinds, " and "),
                     kinds.size() > 1
                         ? "whose times do not compare"
                         : fmt::format("not on {} ones, and are slower", to_string(asked)),
                     huge_pages_hint(most, asked));
}

Result<int> TablesCommand::run() {
  if (auto ok = check(); !ok) return std::unexpected(ok.error());
  options.at_maximum = !no_maximum;
  auto plan = plan_tables(options);
  if (!plan) return std::unexpected(in_terms_of("--bits", std::move(plan.error())));
  announce(*plan);

  TablesReport report{.plan = &*plan, .result = {}, .warnings = plan->left_out};
  LiveTable live(quiet, Unit::ns);
  auto measured = run_tables(*plan, live.progress(), report.result);
  live.clear();
  report.complete = report.result.groups == plan->groups.size();
  const auto note = [&](std::string message) {
    warn(message);
    report.warnings.push_back(std::move(message));
  };
  if (auto warning = pages_warning(report)) note(std::move(*warning));
  if (!measured) {
    measured.error() = in_terms_of("--bits", std::move(measured.error()));
    report.warnings.push_back(measured.error().message);
  } else if (!report.complete) {
    note(fmt::format("interrupted after {} of {} combinations of size, load and keys",
                     report.result.groups, plan->groups.size()));
  }
  int status = report.complete ? kDone : kInterrupted;
  if (report.result.groups > 0) {
    status =
        finish(report.complete, to_json(report), [&report] { fmt::print("{}", to_text(report)); });
  }
  if (!measured) return std::unexpected(measured.error());
  return status;
}

/// Returns the title and the names, wrapped to the width of the help.
std::string wrapped(std::string_view title, const std::vector<std::string>& names) {
  constexpr std::size_t kWidth = 78;
  std::string text;
  std::string line(title);
  for (const auto& name : names) {
    if (line.size() + name.size() + 2 > kWidth) {
      text += line + "\n";
      line = " ";
    }
    line += " " + name;
  }
  return text + line + "\n";
}

}  // namespace

void add_bench_tables(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("tables", "Every table, beside the machine's limit");
  const auto tables = std::make_shared<TablesCommand>();
  TablesOptions& options = tables->options;
  const auto* table =
      add_names(*command, "--table", options.tables, "Tables to measure; all", entrant_names())
          ->type_name("NAME,...");
  // The names are listed below, because they do not fit into the line.
  command->get_formatter()->label(table->get_type_name(), "NAME,...");
  add_whole(*command, "--bits", options.bits, "Slots: 2 to this power; 16,20,22,24", 10, 26);
  command->add_option("--load", options.loads, "Live entries a slot; 0.75")
      ->delimiter(',')
      ->check(number(0.05, 1))
      ->type_name("X,...");
  command->add_flag("--at-maximum", tables->with_maximum,
                    "Measure each table at its promised load, too, and beyond; the default");
  command->add_flag("--no-maximum", tables->no_maximum,
                    "Measure tables at the loads of --load only");
  command
      ->add_option("--key-bytes", options.key_bytes, "Bytes of a key: 16 (IPv4), 40 (IPv6); both")
      ->delimiter(',')
      ->check(one_of({"16", "40"}))
      ->type_name("N,...");
  add_whole(*command, "--burst", options.bursts, "Keys in a burst of look-ups; 1,8,32,64", 1, 64);
  tables->add_to(*command, options);
  command->footer(wrapped("\nTables:", entrant_names()) +
                  "`millrace schemes` and `millrace bench schemes` say what they are.\n\n"
                  "An interrupt ends it early: what is finished is printed and written, and the\n"
                  "exit status is 130. docs/bench-tables.schema.json describes the JSON.\n\n"
                  "Example: millrace bench tables --bits 20 --key-bytes 16 --json tables.json");
  command->callback([&run, tables, command] {
    if (tables->quick && command->count("--bits") == 0) tables->options.bits = {14};
    if (tables->quick && command->count("--repetitions") == 0) tables->options.repetitions = 2;
    run = [tables] {
      const auto status = tables->run();
      return status ? *status : fail(status.error());
    };
  });
}

}  // namespace millrace::cli
