// `millrace bench nat` measures NAT with many sessions, as RFC 9693 says.
#include "bench/nat.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "bench_command.h"
#include "conntrack/schemes.h"
#include "live_table.h"

namespace millrace::cli {
namespace {

using bench::NatCase;
using bench::NatOptions;
using bench::NatReport;
using bench::NatResult;
using bench::Tunnel;

struct NatCommand : BenchCommand {
  NatOptions options;
  std::vector<std::uint64_t> connections{NatCase{}.connections};
  std::vector<std::uint64_t> users{NatCase{}.users};
  std::vector<unsigned> packet_bytes{NatCase{}.packet_bytes};
  std::vector<std::string> tunnels;
  bool full = false;

  int run();

 private:
  std::vector<Result<void>> check();
};

std::vector<std::string> tunnel_names() {
  std::vector<std::string> names;
  for (const Tunnel tunnel : bench::tunnels()) names.emplace_back(to_string(tunnel));
  return names;
}

/// Returns every combination of the given values.
std::vector<NatCase> combined(const NatCommand& of) {
  std::vector<NatCase> all;
  for (const Tunnel tunnel : bench::tunnels()) {
    const bool is_asked =
        of.tunnels.empty() || std::ranges::find(of.tunnels, to_string(tunnel)) != of.tunnels.end();
    if (!is_asked) continue;
    for (const std::uint64_t connections : of.connections) {
      for (const std::uint64_t users : of.users) {
        for (const unsigned bytes : of.packet_bytes)
          all.push_back({connections, users, bytes, tunnel});
      }
    }
  }
  return all;
}

/// Returns the first of `combined`, and that with one value changed at a time, as in Krononat's
/// figure 5.
std::vector<NatCase> varied(const NatCommand& of) {
  std::vector<NatCase> all;
  const auto add = [&all](const NatCase& one) {
    if (std::ranges::find(all, one) == all.end()) all.push_back(one);
  };
  for (const NatCase& usual : combined(of)) {
    add(usual);
    for (const std::uint64_t connections : {1'000U, 10'000U, 100'000U, 1'000'000U, 16'000'000U}) {
      NatCase one = usual;
      one.connections = connections;
      add(one);
    }
    for (const std::uint64_t users : {256U, 1024U, 4096U, 16'384U, 65'536U, 262'144U}) {
      NatCase one = usual;
      one.users = users;
      add(one);
    }
    for (const unsigned bytes : {64U, 128U, 256U, 512U, 1024U, 1518U}) {
      NatCase one = usual;
      one.packet_bytes = bytes;
      add(one);
    }
  }
  return all;
}

Json no_spread(const std::string& name) {
  return {{name + "_median", nullptr}, {name + "_min", nullptr}, {name + "_max", nullptr}};
}

/// Returns a row of a metric. `limit`: the machine's limit, in the metric's unit.
Json row(const NatResult& r, std::string_view metric, const std::optional<Spread>& mpps,
         const std::optional<Spread>& limit, const Json& more) {
  Json line{{"metric", metric},
            {"contender", r.table},
            {"connections", r.of.connections},
            {"users", std::min(r.of.users, r.of.connections)},
            {"packet_bytes", r.of.packet_bytes},
            {"tunnel", to_string(r.of.tunnel)}};
  line.update(mpps ? spread_json("mpps", *mpps, 4) : no_spread("mpps"));
  line["limit_mpps"] = limit ? Json(rounded(limit->median, 4)) : Json();
  line.update(more);
  line["pages"] = to_string(r.pages);
  return line;
}

std::vector<Json> rows(const NatResult& r) {
  Json established = spread_json("unpaced_mpps", r.unpaced, 4);
  established.update(spread_json("lost_at_95", r.lost_at_95, 6));
  established["parse_mpps"] = rounded(r.parse.median, 4);
  return {row(r, "establishment", r.establishment, r.touch_new, Json::object()),
          row(r, "established", r.lossless, r.touch, established),
          row(r, "tear_down", r.tear_down, std::nullopt, Json::object()),
          row(r, "capacity", std::nullopt, std::nullopt,
              {{"capacity", r.capacity},
               {"mappings", r.mappings},
               {"bytes_per_session", rounded(r.bytes_per_session, 1)},
               {"bytes_per_mapping", rounded(r.bytes_per_mapping, 1)}})};
}

Json to_json(const NatReport& report, const NatOptions& options) {
  Json all = results_json("nat", report.complete,
                          {{"tables", options.tables},
                           {"seconds", options.seconds},
                           {"queue", options.queue},
                           {"burst", options.burst}},
                          options);
  for (const auto& result : report.results) {
    for (const Json& line : rows(result)) all["results"].push_back(line);
  }
  return all;
}

std::string mpps_cell(const Spread& of) {
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", of.median, of.min, of.max);
}

void print(const NatReport& report) {
  fmt::print(
      "One core; million packets or sessions a second, median (least-most). new: sessions begun;\n"
      "no loss: established, half each way, at the highest rate at which no packet is lost;\n"
      "unpaced: as fast as they are received; lost: share lost at 0.95 of unpaced; ended: "
      "sessions\n"
      "ended by time\n");
  fmt::print("{:11}{:8}{:>10}{:>11}{:>6}{:>18}{:>20}{:>20}{:>10}{:>18}\n", "table", "tunnel",
             "sessions", "customers", "bytes", "new", "no loss", "unpaced", "lost", "ended");
  for (const auto& r : report.results) {
    fmt::print("{:11}{:8}{:>10}{:>11}{:>6}{:>18}{:>20}{:>20}{:>8.3f} %{:>18}\n", r.table,
               to_string(r.of.tunnel), r.of.connections, std::min(r.of.users, r.of.connections),
               r.of.packet_bytes, mpps_cell(r.establishment), mpps_cell(r.lossless),
               mpps_cell(r.unpaced), 100 * r.lost_at_95.median, mpps_cell(r.tear_down));
  }
  fmt::print(
      "\nparse: Mpps of parsing alone; touch: of parsing and one record of a bare table; touch "
      "new:\n"
      "of parsing and inserting one key into it\n"
      "{:11}{:8}{:>10}{:>12}{:>17}{:>17}{:>8}{:>8}{:>11}  {}\n",
      "table", "tunnel", "sessions", "capacity", "bytes a session", "bytes a mapping", "parse",
      "touch", "touch new", "pages");
  for (const auto& r : report.results) {
    fmt::print("{:11}{:8}{:>10}{:>12}{:>17.1f}{:>17.1f}{:>8.1f}{:>8.1f}{:>11.1f}  {}\n", r.table,
               to_string(r.of.tunnel), r.of.connections, r.capacity, r.bytes_per_session,
               r.bytes_per_mapping, r.parse.median, r.touch.median, r.touch_new.median,
               to_string(r.pages));
  }
}

std::vector<Result<void>> NatCommand::check() {
  std::vector<Result<void>> all{
      each_once("--connections", connections), each_once("--users", users),
      each_once("--packet-bytes", packet_bytes), each_once("--tunnel", tunnels),
      each_once("--table", options.tables)};
  options.cases = full ? varied(*this) : combined(*this);
  for (const NatCase& one : options.cases) all.push_back(bench::check(one));
  return all;
}

int NatCommand::run() {
  for (const auto& ok : check()) {
    if (!ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  LiveTable live(quiet, Unit::mpps);
  const auto report = bench::run_nat(options, live.progress());
  live.clear();
  if (!report) return fail(in_terms_of("--connections", report.error()));
  if (left_nothing(report->complete, report->results.empty())) return kInterrupted;
  return finish(report->complete, to_json(*report, options), [&report] { print(*report); });
}

}  // namespace

void add_bench_nat(CLI::App& bench, Run& run) {
  auto* command = bench.add_subcommand("nat", "NAT with many sessions, as RFC 9693 measures it");
  const auto nat = std::make_shared<NatCommand>();
  NatOptions& options = nat->options;
  add_whole(*command, "--connections", nat->connections, "Sessions; 5000000", 1,
            NatOptions::kMostConnections);
  add_whole(*command, "--users", nat->users, "Customers, who have equally many sessions; 16384", 1,
            bench::kMostCustomers);
  add_whole(*command, "--packet-bytes", nat->packet_bytes,
            "Size of packets with their check sequence; 64", 64, 1518);
  add_names(*command, "--tunnel", nat->tunnels, "Encapsulation on customers' side; all",
            tunnel_names());
  add_names(*command, "--table", options.tables, "Tables; race", TableSchemes::names());
  command->add_flag("--full", nat->full,
                    "Also with one of sessions, customers and packet size changed at a time");
  command->add_option("--seconds", options.seconds, "Length of a trial at a given rate")
      ->check(number(0.01, 600))
      ->capture_default_str()
      ->type_name("X");
  add_whole(*command, "--queue", options.queue, "Packets that may wait", 1, 65'536);
  add_whole(*command, "--burst", options.burst, "Packets a burst", 1, 64);
  nat->add_to(*command, options);
  command->footer(
      "\nThe search for the rate without loss takes some ten trials of --seconds, and up to\n"
      "three times as many if the machine pauses.\n\n"
      "An interrupt ends it early: what is finished is printed and written, and the exit\n"
      "status is 130.\n\n"
      "Examples: millrace bench nat --seconds 15 --json nat.json\n"
      "          millrace bench nat --connections 100000,1000000 --users 1024 --repetitions 1");
  command->callback([&run, nat, command] {
    if (nat->quick && command->count("--connections") == 0) nat->connections = {20'000};
    if (nat->quick && command->count("--users") == 0) nat->users = {100};
    if (nat->quick && command->count("--repetitions") == 0) nat->options.repetitions = 1;
    if (nat->quick && command->count("--seconds") == 0) nat->options.seconds = 0.02;
    run = [nat] { return nat->run(); };
  });
}

}  // namespace millrace::cli
