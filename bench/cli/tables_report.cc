#include "tables_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>

#include "bench/machine.h"
#include "bench_command.h"
#include "core/json.h"

namespace millrace::cli {
namespace {

using bench::TableResult;

std::uint64_t slots(unsigned bits) { return std::uint64_t{1} << bits; }

Json to_json(const TableResult& r) {
  Json line{{"table", r.table},           {"key_bytes", r.key_bytes},
            {"slots", slots(r.bits)},     {"live", r.live},
            {"load", rounded(r.load, 4)}, {"at_maximum", r.at_maximum},
            {"operation", r.operation},   {"burst", r.burst}};
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
  return {{"table", r.table},       {"key_bytes", r.key_bytes},
          {"slots", slots(r.bits)}, {"load", rounded(r.load, 4)},
          {"count", r.count},       {"ns_by_percentile", std::move(percentiles)}};
}

Json to_json(const bench::OverloadResult& r) {
  Json line{{"table", r.table},
            {"key_bytes", r.key_bytes},
            {"slots", slots(r.bits)},
            {"promised", r.promised},
            {"refused_below", r.refused_below},
            {"offered_beyond", r.offered},
            {"refused_beyond", r.refused_beyond}};
  line.update(spread_json(r.ns));
  return line;
}

Json to_json(const bench::MachineLimit& r) {
  return {{"slots", slots(r.bits)},
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

Json to_json(const bench::TablesOptions& options) {
  Json loads = Json::array();
  for (const double load : options.loads) loads.push_back(rounded(load, 4));
  return {{"tables", options.tables},           {"bits", options.bits},
          {"loads", std::move(loads)},          {"at_maximum", options.at_maximum},
          {"key_bytes", options.key_bytes},     {"bursts", options.bursts},
          {"repetitions", options.repetitions}, {"seed", options.seed},
          {"pages", to_string(options.pages)}};
}

/// Text to which formatted pieces are added.
class Text {
 public:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<T>(values)...);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

constexpr std::array<std::string_view, 6> kOperations{"touch",  "hit",    "miss",
                                                      "insert", "delete", "mix"};

using Row = std::map<std::string_view, const TableResult*>;  // by operation
/// Results in rows, one for each table; lookups in bursts of 32 or, if there are none, of the
/// nearest size.
struct Rows {
  std::vector<std::string_view> order;
  std::map<std::string_view, Row> of;

  void add(const TableResult& r) {
    const auto distance = [](const TableResult& result) {
      return std::abs(static_cast<int>(result.burst) - 32);
    };
    if (!of.contains(r.table)) order.push_back(r.table);
    auto& cell = of[r.table][r.operation];
    if (cell == nullptr || distance(r) < distance(*cell)) cell = &r;
  }
};

void add_rows(Text& text, const Rows& rows) {
  const unsigned burst = rows.of.begin()->second.at("touch")->burst;
  text.add(
      "median ns an operation on one core, {}; memory: bytes an entry\n",
      burst == 32 ? "bursts of 32" : fmt::format("look-ups in bursts of {}, changes of 32", burst));
  text.add("{:15}{:>7}", "", "load");
  for (const auto operation : kOperations) text.add("{:>7}", operation);
  text.add("{:>8}{:>7}{:>7}  {}\n", "x limit", "memory", "index", "pages");
  for (const auto name : rows.order) {
    const Row& row = rows.of.at(name);
    const TableResult& touch = *row.at("touch");
    text.add("{:15}{:>7}", name, rounded(touch.load, 4));
    for (const auto operation : kOperations)
      text.add("{:>7}", short_ns(row.at(operation)->ns.median));
    text.add("{:>8.2f}{:>7.1f}{:>7.1f}  {}\n", touch.ns.median / touch.limit_ns,
             touch.bytes_per_entry, touch.index_per_entry, to_string(touch.pages));
  }
}

void add_operations(Text& text, const std::vector<TableResult>& operations) {
  std::map<std::tuple<unsigned, unsigned, bool, double>, Rows> groups;
  for (const auto& r : operations)
    groups[{r.key_bytes, r.bits, r.at_maximum, r.at_maximum ? 0 : r.load}].add(r);
  for (const auto& [group, rows] : groups) {
    const auto& [key_bytes, bits, at_maximum, load] = group;
    text.add("\n{}-byte keys, 2^{} slots, {}\n", key_bytes, bits,
             at_maximum ? "each at the highest load that it promises"
                        : fmt::format("load {}", rounded(load, 4)));
    add_rows(text, rows);
  }
  text.add(
      "\nx limit: time of a touch, divided by the least time of its two fetches in the same run\n");
}

void add_limits(Text& text, const std::vector<bench::MachineLimit>& limits) {
  text.add(
      "The machine: ns for a random line of memory as large as the records of race, and for such a "
      "line\ntogether with a random line of memory as large as the index of race; median "
      "(least-most)\n"
      "{:27}{:>36}{:>36}\n",
      "", "a record", "a line of the index, and a record");
  text.add("{:>5}  {:<12}{:>8}{:>18}{:>18}{:>18}{:>18}\n", "slots", "pages", "in turn", "read",
           "updated", "read", "updated");
  for (const auto& limit : limits) {
    text.add("{:>5}  {:<12}{:>8}{:>18}{:>18}{:>18}{:>18}\n", fmt::format("2^{}", limit.bits),
             to_string(limit.pages), short_ns(limit.dependent_ns.median), cell(limit.one_read_ns),
             cell(limit.one_update_ns), cell(limit.two_read_ns), cell(limit.read_update_ns));
  }
  text.add("in turn: each address depends on the line read before\n");
}

void add_overloads(Text& text, const std::vector<bench::OverloadResult>& overloads) {
  if (overloads.empty()) return;
  text.add(
      "\nInsertions in all repetitions; refused: insertions refused up to the promised capacity; "
      "beyond:\nshare refused of the insertions from there up to 120 % of that capacity\n");
  text.add("{:15}{:>10}{:>10}{:>10}{:>12}{:>12}{:>26}\n", "", "key bytes", "slots", "promised",
           "refused", "beyond", "ns an insertion beyond");
  for (const auto& r : overloads) {
    const double offered = static_cast<double>(std::max<std::size_t>(r.offered, 1));
    text.add("{:15}{:>10}{:>10}{:>10}{:>12}{:>12}{:>26}\n", r.table, r.key_bytes,
             fmt::format("2^{}", r.bits), r.promised, r.refused_below,
             fmt::format("{:.1f} %", 100.0 * static_cast<double>(r.refused_beyond) / offered),
             cell(r.ns));
  }
}

}  // namespace

Json to_json(const TablesReport& report) {
  return {{"suite", "tables"},
          {"complete", report.complete},
          {"warnings", report.warnings},
          {"options", to_json(report.plan->options)},
          {"machine", bench::describe_machine()},
          {"results", list(report.result.operations)},
          {"insertion_times", list(report.result.insertions)},
          {"overload", list(report.result.overloads)},
          {"limits", list(report.result.limits)}};
}

std::string to_text(const TablesReport& report) {
  Text text;
  add_limits(text, report.result.limits);
  add_operations(text, report.result.operations);
  add_overloads(text, report.result.overloads);
  return text.take();
}

}  // namespace millrace::cli
