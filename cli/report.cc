#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "command_line/output.h"
#include "command_line/version.h"
#include "core/grouped.h"
#include "core/json.h"
#include "report_ports.h"
#include "report_words.h"

namespace millrace::cli {
namespace {

struct Totals {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t tracked = 0;
  std::uint64_t stateless = 0;
  std::uint64_t related = 0;
  std::uint64_t generated = 0;
  std::uint64_t consumed = 0;
  std::uint64_t held = 0;
  std::uint64_t hopped = 0;
  std::vector<std::pair<std::string_view, std::uint64_t>> untracked;  // passed, by reason
  std::vector<std::pair<std::string_view, std::uint64_t>> dropped;    // by reason
};

/// Returns `whole` - `part`, at least 0: the counters of running workers are not of one moment.
std::uint64_t without(std::uint64_t whole, std::uint64_t part) {
  return whole - std::min(whole, part);
}

/// Corrects the lines' counts by what happened outside of lines: packets that hosts made, sent
/// later or dropped, and packets that could not be handed to another worker, which no line counted.
void add_host(Totals& totals, const Live::Totals& host) {
  totals.in += host.not_handed;
  totals.out = without(totals.out + host.generated + host.released, host.not_sent);
  totals.generated = host.generated;
  totals.held = without(totals.held, host.released + host.unresolved);
  const auto drop = [&totals](std::string_view reason, std::uint64_t count) {
    if (count == 0) return;
    const auto known =
        std::ranges::find(totals.dropped, reason, [](const auto& d) { return d.first; });
    if (known != totals.dropped.end()) {
      known->second += count;
    } else {
      totals.dropped.emplace_back(reason, count);
    }
  };
  drop(to_string(Verdict::unresolved), host.unresolved);
  drop("not_sent", host.not_sent);
  drop("not_handed", host.not_handed);
}

Totals totals_of(const RunReport& report) {
  const bool is_live = report.live != nullptr;
  // The host's counters are read before the lines': a host counts a packet after its line has.
  const Live::Totals host = is_live ? report.live->totals() : Live::Totals{};
  const WorkerCounters counters = report.workers->counters();
  const auto count = [&](Verdict v) {
    return counters.verdict[static_cast<std::size_t>(v)].value();
  };
  Totals totals{.in = counters.in.value(),
                .out = counters.out.value(),
                .bytes_in = counters.bytes_in.value(),
                .bytes_out = counters.bytes_out.value(),
                .tracked = count(Verdict::tracked),
                .stateless = count(Verdict::stateless),
                .related = count(Verdict::related),
                .consumed = count(Verdict::consumed),
                .held = count(Verdict::held),
                .hopped = count(Verdict::hopped)};
  for (std::size_t v = 0; v < kVerdicts; ++v) {
    const auto verdict = static_cast<Verdict>(v);
    if (count(verdict) == 0) continue;
    const bool is_unwanted = !report.config.pass_unmatched || (is_live && !is_routable(verdict));
    if (is_drop(verdict) || (is_unmatched(verdict) && is_unwanted)) {
      totals.dropped.emplace_back(to_string(verdict), count(verdict));
    } else if (is_unmatched(verdict) || verdict == Verdict::passed) {
      totals.untracked.emplace_back(to_string(verdict), count(verdict));
    }
  }
  if (is_live) add_host(totals, host);
  return totals;
}

Json reasons(const std::vector<std::pair<std::string_view, std::uint64_t>>& counts) {
  Json object = Json::object();
  for (const auto& [name, count] : counts) object[std::string(name)] = count;
  return object;
}

std::uint64_t sum(const std::vector<std::pair<std::string_view, std::uint64_t>>& counts) {
  std::uint64_t total = 0;
  for (const auto& [name, count] : counts) total += count;
  return total;
}

double quotient(std::uint64_t dividend, std::uint64_t divisor) {
  return divisor == 0 ? 0.0 : static_cast<double>(dividend) / static_cast<double>(divisor);
}

/// Returns for how many nanoseconds a worker was busy: the whole time of a replay; in a live run
/// the time in which it had packets and did not wait for locks.
std::uint64_t busy_ns(const RunReport& report, const Workers::Time& of_one) {
  return report.live == nullptr ? of_one.elapsed_ns : of_one.elapsed_ns - of_one.waited_ns;
}

/// Returns the busy time of all workers together, divided by their packets, in nanoseconds.
double ns_per_packet(const RunReport& report) {
  std::uint64_t ns = 0;
  for (const Workers::Time& of_one : report.times) ns += busy_ns(report, of_one);
  return quotient(ns, report.workers->counters().in.value());
}

std::uint64_t elapsed_ns(const RunReport& report) {
  return std::ranges::max(report.times, {}, &Workers::Time::elapsed_ns).elapsed_ns;
}

double mpps(const RunReport& report) {
  return 1000.0 * quotient(report.workers->counters().in.value(), elapsed_ns(report));
}

/// Returns the memory of the IPv4 tables, with records and ageing, divided by their capacity.
double bytes_per_connection(const RunReport& report) {
  const TableReport v4 = report.workers->report_v4();
  return v4.capacity == 0 ? 0.0 : quotient(v4.memory_bytes, v4.capacity);
}

Json workers_of(const RunReport& report) {
  Json list = Json::array();
  const std::uint64_t in = report.workers->counters().in.value();
  for (unsigned n = 0; n < report.workers->count(); ++n) {
    const WorkerCounters& counters = report.workers->line(n).counters();
    const Workers::Time& time = report.times[n];
    list.push_back(
        {{"packets", counters.in.value()},
         {"share", rounded(quotient(counters.in.value(), in), 4)},
         {"connections", counters.opened.value()},
         {"ns_per_packet", rounded(quotient(busy_ns(report, time), counters.in.value()), 2)},
         {"waited", rounded(quotient(time.waited_ns, time.elapsed_ns), 4)},
         {"waited_ns", time.waited_ns}});
  }
  return list;
}

/// Returns the numbers of connections that ended, by reason: for the reasons that occurred, and for
/// `timeout` always.
Json endings(const WorkerCounters& counters) {
  Json all = Json::object();
  for (std::size_t e = 0; e < kEndings; ++e) {
    const std::uint64_t count = counters.closed[e].value();
    if (count != 0 || e == 0) all[std::string(kEndingNames[e])] = count;
  }
  return all;
}

/// Adds the counters of the object `name` to `object`.
void add_counters(Json& object, std::string_view name, const WorkerCounters& counters) {
  for (const CounterKind& kind : kCounterKinds) {
    if (kind.object == name) object[std::string(kind.name)] = (counters.*kind.counter).value();
  }
}

Json connections_of(const RunReport& report) {
  const WorkerCounters counters = report.workers->counters();
  Json object{{"closed", endings(counters)},
              {"live", report.workers->report_v4().live + report.workers->report_v6().live}};
  add_counters(object, "connections", counters);
  return object;
}

Json limits_of(const RunReport& report) {
  const SourceCounts* sources = report.workers->sources();
  if (sources == nullptr) return nullptr;
  Json object{{"per_source", sources->most()},
              {"source_prefix_v4", report.config.source_limit.prefix_v4},
              {"source_prefix_v6", report.config.source_limit.prefix_v6},
              {"bytes", sources->memory_bytes()}};
  add_counters(object, "limits", report.workers->counters());
  return object;
}

Json fragments_of(const RunReport& report) {
  const FragmentReport fragments = report.workers->report_fragments();
  return {{"datagrams", fragments.datagrams},
          {"kept", fragments.kept},
          {"bytes", fragments.memory_bytes}};
}

class Table {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void add(std::string_view lines) { text_ += lines; }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

void print_packets(Table& table, const RunReport& report) {
  const Totals totals = totals_of(report);
  table.line("{:<14}{:>14} in, {} out, {} dropped", "packets", grouped(totals.in),
             grouped(totals.out), grouped(sum(totals.dropped)));
  table.line("{:<14}{:>14} in, {} out", "bytes", grouped(totals.bytes_in),
             grouped(totals.bytes_out));
  // Generated packets are part of the whole: they, too, may be held, or not sent.
  const std::uint64_t all = totals.in + totals.generated;
  const auto row = [&](std::string_view name, std::uint64_t count, std::string_view what) {
    table.line("  {:<16}{:>10}  {:>5.1f} %{}{}", name, grouped(count), 100.0 * quotient(count, all),
               what.empty() ? "" : "  ", what);
  };
  row("tracked", totals.tracked, "");
  if (totals.stateless != 0)
    row("stateless", totals.stateless, why_stateless(report, totals.stateless));
  if (totals.related != 0) row("related", totals.related, "ICMP errors about what was served");
  for (const auto& [name, count] : totals.untracked) row(name, count, "passed untouched");
  if (totals.consumed != 0) row("consumed", totals.consumed, "for the host itself or the kernel");
  if (totals.held != 0) row("held", totals.held, "until their next hops are known");
  if (totals.hopped != 0) row("hopped", totals.hopped, "to the servers that serve them");
  for (const auto& [name, count] : totals.dropped) row(name, count, "dropped");
  if (totals.generated != 0)
    table.line(
        "  {:<16}{:>10}           made by millrace (ARP, ICMP, RSTs, fragments, ...) or sent "
        "by the kernel",
        "generated", grouped(totals.generated));
}

void print_memory(Table& table, const RunReport& report) {
  const TableReport v4 = report.workers->report_v4();
  const TableReport v6 = report.workers->report_v6();
  if (v4.capacity == 0) return table.line("{:<14}none: nothing is tracked", "memory");
  table.line(
      "{:<14}{:>14} MiB for {} IPv4 and {} IPv6 connections, {:.0f} bytes for each IPv4 "
      "connection, {} pages",
      "memory", (v4.memory_bytes + v6.memory_bytes) >> 20, grouped(v4.capacity),
      grouped(v6.capacity), bytes_per_connection(report), to_string(v4.pages));
}

/// Adds a line for each worker, if there are several: it shows whether their loads are equal.
void print_workers(Table& table, const RunReport& report) {
  const unsigned count = report.workers->count();
  const std::uint64_t in = report.workers->counters().in.value();
  if (count == 1) return;
  for (unsigned n = 0; n < count; ++n) {
    const WorkerCounters& counters = report.workers->line(n).counters();
    table.line("  worker {:<9}{:>10} packets  {:>5.1f} %  {:.1f} ns each, {} connections", n,
               grouped(counters.in.value()), 100.0 * quotient(counters.in.value(), in),
               quotient(busy_ns(report, report.times[n]), counters.in.value()),
               grouped(counters.opened.value()));
  }
}

/// Returns how often the tables filled to each watermark, by its percentage.
Json watermarks(const WorkerCounters& counters) {
  Json all = Json::object();
  for (std::size_t w = 0; w < kWatermarks; ++w)
    all[std::to_string(kWatermarkPercent[w])] = counters.over_watermark[w].value();
  return all;
}

}  // namespace

Json spread_of(const RunReport& report) {
  Json spread{{"scheme", report.spread.scheme}, {"entries", report.spread.entries}};
  if (report.live != nullptr) {
    spread["workers_in_use"] = report.live->in_use();
    spread["moves"] = report.live->owners().moves().count();
  }
  return spread;
}

Json to_json(const RunReport& report) {
  const WorkerCounters counters = report.workers->counters();
  const Totals totals = totals_of(report);
  const TableReport v4 = report.workers->report_v4();
  const TableReport v6 = report.workers->report_v6();
  Json json{
      {"version", MILLRACE_VERSION},
      {"input", report.input},
      {"interrupted", report.interrupted},
      {"packets",
       {{"in", totals.in},
        {"out", totals.out},
        {"bytes_in", totals.bytes_in},
        {"bytes_out", totals.bytes_out},
        {"dropped", reasons(totals.dropped)},
        {"untracked", reasons(totals.untracked)},
        {"tracked", totals.tracked},
        {"stateless", totals.stateless},
        {"related", totals.related},
        {"generated", totals.generated},
        {"consumed", totals.consumed},
        {"held", totals.held},
        {"hopped", totals.hopped}}},
      {"connections", connections_of(report)},
      {"table",
       {{"scheme", report.config.table},
        {"sharing", report.config.sharing},
        {"capacity", v4.capacity},
        {"capacity_v6", v6.capacity},
        {"over_watermark", watermarks(counters)},
        {"load", rounded(quotient(v4.live + v6.live, v4.slots + v6.slots), 4)},
        {"bytes", v4.memory_bytes + v6.memory_bytes},
        {"bytes_per_connection", rounded(bytes_per_connection(report), 1)},
        {"pages", to_string(v4.pages)}}},
      {"limits", limits_of(report)},
      {"fragments", fragments_of(report)},
      {"ageing", {{"scheme", report.config.ageing}, {"interval_ms", report.config.interval_ms}}},
      {"elapsed_s", static_cast<double>(elapsed_ns(report)) / 1e9},
      {"ns_per_packet", rounded(ns_per_packet(report), 2)},
      {"mpps", rounded(mpps(report), 3)},
      {"spread", spread_of(report)},
      {"workers", workers_of(report)},
      {"ports", ports_of(report)},
  };
  json.update(report.workers->function().statistics());
  json["seed"] = report.seed ? Json(*report.seed) : Json(nullptr);
  json["warnings"] = report.warnings;
  return json;
}

std::string to_table(const RunReport& report) {
  const WorkerCounters counters = report.workers->counters();
  Table table;
  print_packets(table, report);
  const std::uint64_t taken_over = counters.taken_over.value();
  table.line("{:<14}{:>14} opened{},{} {} ended, {} live at most, {} refused", "connections",
             grouped(counters.opened.value()),
             report.is_configured ? "" : " (without services each direction is a connection)",
             taken_over == 0 ? "" : " " + grouped(taken_over) + " taken over,",
             grouped(counters.ended()), grouped(counters.peak.value()),
             grouped(counters.refused.value()));
  if (report.live == nullptr) {
    table.line("{:<14}{:>14.1f} ns a packet, {:.2f} Mpps {} ({}, {}, {})", "speed",
               ns_per_packet(report), mpps(report), of_workers(report), report.config.table,
               report.config.sharing, report.config.ageing);
  } else {
    table.line("{:<14}{:>14.1f} s, {:.0f} packets a second, {:.1f} ns each ({}, {}, {})", "time",
               static_cast<double>(elapsed_ns(report)) / 1e9, 1e6 * mpps(report),
               ns_per_packet(report), report.config.table, report.config.sharing,
               report.config.ageing);
  }
  print_workers(table, report);
  table.add(lines_of_ports(report));
  print_memory(table, report);
  table.add(report.workers->function().table());
  return std::move(table).text();
}

}  // namespace millrace::cli
