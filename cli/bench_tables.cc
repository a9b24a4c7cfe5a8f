// `millrace bench tables`: every table, beside the machine's limit.
#include "bench/tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "bench/contender.h"
#include "bench/machine.h"
#include "bench_command.h"
#include "common_options.h"
#include "output.h"

namespace millrace::cli {
namespace {

using bench::TableResult;
using bench::TablesOptions;
using bench::TablesResult;

struct TablesCommand {
  TablesOptions options;
  std::string pages = "huge";
  std::string json;
  bool quick = false;
  bool quiet = false;

  int run();
};

Json to_json(const TableResult& r) {
  Json line{{"table", r.table},
            {"key_bytes", r.key_bytes},
            {"slots", std::uint64_t{1} << r.bits},
            {"live", r.live},
            {"load", rounded(r.load, 4)},
            {"at_maximum", r.at_maximum},
            {"operation", r.operation},
            {"burst", r.burst}};
  line.update(spread_json(r.ns));
  line.update(Json{{"limit_ns", rounded(r.limit_ns)},
                   {"bytes_per_entry", rounded(r.bytes_per_entry)},
                   {"index_bytes_per_entry", rounded(r.index_per_entry)},
                   {"pages", to_string(r.pages)}});
  return line;
}

Json to_json(const bench::InsertionTimes& r) {
  Json percentiles = Json::object();
  for (const auto& [percent, ns] : r.percentiles) {
    percentiles[fmt::format("{}", percent)] = std::round(ns);
  }
  return {{"table", r.table},
          {"key_bytes", r.key_bytes},
          {"slots", std::uint64_t{1} << r.bits},
          {"load", rounded(r.load, 4)},
          {"count", r.count},
          {"ns_by_percentile", std::move(percentiles)}};
}

Json to_json(const bench::OverloadResult& r) {
  Json line{{"table", r.table},
            {"key_bytes", r.key_bytes},
            {"slots", std::uint64_t{1} << r.bits},
            {"promised", r.promised},
            {"refused_below", r.refused_below},
            {"offered_beyond", r.offered},
            {"refused_beyond", r.refused_beyond}};
  line.update(spread_json(r.ns));
  return line;
}

Json to_json(const bench::MachineLimit& r) {
  return {{"slots", std::uint64_t{1} << r.bits},
          {"pages", to_string(r.pages)},
          {"index_bytes", r.index_bytes},
          {"record_bytes", r.record_bytes},
          {"dependent_read", spread_json(r.dependent_ns)},
          {"record_read", spread_json(r.one_read_ns)},
          {"record_update", spread_json(r.one_update_ns)},
          {"index_and_record_read", spread_json(r.two_read_ns)},
          {"index_read_record_update", spread_json(r.read_update_ns)}};
}

template <class Line>
Json list(const std::vector<Line>& lines) {
  Json all = Json::array();
  for (const auto& line : lines) all.push_back(to_json(line));
  return all;
}

constexpr std::array<std::string_view, 6> kOperations{"touch",  "hit",    "miss",
                                                      "insert", "delete", "mix"};

/// One row a table; the operations in bursts of 32, or of the size nearest to it.
void print_group(const std::vector<const TableResult*>& group) {
  std::map<std::string_view, std::map<std::string_view, const TableResult*>> rows;
  std::vector<std::string_view> order;
  for (const TableResult* r : group) {
    auto& cell = rows[r->table][r->operation];
    if (std::ranges::find(order, r->table) == order.end()) order.push_back(r->table);
    const auto distance = [](const TableResult* of) {
      return std::abs(static_cast<int>(of->burst) - 32);
    };
    if (cell == nullptr || distance(r) < distance(cell)) cell = r;
  }
  fmt::print("{:<16}{:>6}", "", "load");
  for (const auto operation : kOperations) fmt::print("{:>9}", operation);
  fmt::print("{:>13}{:>10}{:>9}  {}\n", "touch/limit", "bytes", "index", "pages");
  for (const auto name : order) {
    fmt::print("{:<16}{:>6.2f}", name, rows[name]["touch"]->load);
    for (const auto operation : kOperations) {
      const TableResult* r = rows[name][operation];
      fmt::print("{:>9}", r == nullptr ? "" : fmt::format("{:.1f}", r->ns.median));
    }
    const TableResult* touch = rows[name]["touch"];
    fmt::print("{:>13.2f}{:>10.1f}{:>9.1f}  {}\n", touch->ns.median / touch->limit_ns,
               touch->bytes_per_entry, touch->index_per_entry, to_string(touch->pages));
  }
}

void print(const TablesResult& result) {
  fmt::print("The machine: ns for one random line, or one of the index and one of the records\n");
  fmt::print("{:>9}  {:<12}{:>18}{:>20}{:>20}{:>20}{:>20}\n", "slots", "pages", "dependent", "read",
             "update", "two read", "read + update");
  for (const auto& limit : result.limits) {
    fmt::print("{:>9}  {:<12}{:>18}{:>20}{:>20}{:>20}{:>20}\n", std::uint64_t{1} << limit.bits,
               to_string(limit.pages), fmt::format("{:.0f}", limit.dependent_ns.median),
               cell(limit.one_read_ns), cell(limit.one_update_ns), cell(limit.two_read_ns),
               cell(limit.read_update_ns));
  }
  std::map<std::tuple<unsigned, unsigned, bool, double>, std::vector<const TableResult*>> groups;
  for (const auto& r : result.operations) {
    if (r.load > 0)
      groups[{r.key_bytes, r.bits, r.at_maximum, r.at_maximum ? 0 : r.load}].push_back(&r);
  }
  for (const auto& [group, lines] : groups) {
    const auto& [key_bytes, bits, at_maximum, load] = group;
    fmt::print("\n{}-byte keys, 2^{} slots, {}: ns an operation, one core\n", key_bytes, bits,
               at_maximum ? "each at the highest load that it promises"
                          : fmt::format("load {:.3g}", load));
    print_group(lines);
  }
  if (result.overloads.empty()) return;
  fmt::print("\nRefused insertions: up to the promise, and from there to 120 % of it\n");
  fmt::print("{:<22}{:>6}{:>10}{:>12}{:>10}{:>22}\n", "", "key", "promised", "below", "beyond",
             "ns beyond");
  for (const auto& r : result.overloads) {
    fmt::print(
        "{:<22}{:>6}{:>10}{:>12}{:>10}{:>22}\n", r.table, r.key_bytes, r.promised, r.refused_below,
        fmt::format("{:.1f} %", 100.0 * static_cast<double>(r.refused_beyond) /
                                    static_cast<double>(std::max<std::size_t>(r.offered, 1))),
        cell(r.ns));
  }
}

int TablesCommand::run() {
  options.pages = pages_named(pages).value_or(Pages::huge);
  if (!json.empty()) {
    if (auto ok = check_writable(json); !ok) return fail(ok.error());
  }
  const auto result = bench::run_tables(options, progress_line(quiet));
  progress_line(quiet)("");
  if (!result) return fail(result.error());
  if (json != "-") print(*result);
  if (json.empty()) return kDone;
  const Json all{{"suite", "tables"},
                 {"machine", bench::describe_machine()},
                 {"results", list(result->operations)},
                 {"insertion_times", list(result->insertions)},
                 {"overload", list(result->overloads)},
                 {"limits", list(result->limits)}};
  const auto ok = write_whole(json, to_text(all));
  return ok ? kDone : fail(ok.error());
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const auto& entrant : bench::entrants()) names.emplace_back(entrant.name);
  return names;
}

}  // namespace

void add_bench_tables(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("tables", "Every table, beside the machine's limit");
  const auto tables = std::make_shared<TablesCommand>();
  TablesOptions& options = tables->options;
  command->add_option("--table", options.tables, "Tables to measure; all, variants and peers too")
      ->delimiter(',')
      ->check(CLI::IsMember(table_names()))
      ->type_name("NAME,...");
  command->add_option("--bits", options.bits, "Slots: 2 to this power; 16,20,22,24")
      ->delimiter(',')
      ->check(CLI::Range(10, 26))
      ->type_name("N,...");
  command->add_option("--load", options.loads, "Live entries a slot; 0.75")
      ->delimiter(',')
      ->check(CLI::Range(0.05, 1.0))
      ->type_name("X,...");
  command
      ->add_flag("--at-maximum,!--no-maximum", options.at_maximum,
                 "Each at the load that it promises, too, and beyond")
      ->capture_default_str();
  command->add_option("--key-bytes", options.key_bytes, "16 (IPv4), 40 (IPv6); both")
      ->delimiter(',')
      ->check(CLI::IsMember({16, 40}))
      ->type_name("N,...");
  command->add_option("--burst", options.bursts, "Keys a look-up; 1,8,32,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->type_name("N,...");
  command->add_option("--repetitions", options.repetitions, "Turns of each table")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--pages", tables->pages, "Best memory to try: huge, transparent or small")
      ->check(CLI::IsMember({"huge", "transparent", "small"}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Fixes keys and hash")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--json", tables->json, "Write results as JSON; - in place of the tables")
      ->type_name("FILE");
  command->add_flag("--quick", tables->quick, "A small size only: does it still work?");
  command->add_flag("--quiet", tables->quiet, "No progress");
  command->footer("\nExample: millrace bench tables --bits 20 --key-bytes 16 --json tables.json");
  command->callback([&run, tables, command] {
    if (tables->quick && command->count("--bits") == 0) tables->options.bits = {14};
    if (tables->quick && command->count("--repetitions") == 0) tables->options.repetitions = 2;
    run = [tables] { return tables->run(); };
  });
}

}  // namespace millrace::cli
