// `millrace advise` recommends schemes for a capture on this machine; `millrace bench advise`
// measures how good that advice is.
#include "bench/advise.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <ranges>
#include <thread>

#include "bench_command.h"
#include "command_line/handed_over.h"
#include "command_line/huge_pages.h"
#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "core/grouped.h"
#include "core/processors.h"
#include "live_table.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

using bench::Advice;
using bench::AdviceOptions;
using bench::Combination;
using bench::Exhausted;
using bench::Tried;

struct AdviseCommand : BenchCommand {
  AdviceOptions options;
  std::string in;
  std::string out;

  void add_options_to(CLI::App& command);
  /// Reads a capture, and warns if a part of it could not be read. An interrupt ends the program at
  /// once, because a pipe may never end. Errors: as `Capture::load`.
  Result<Capture> load(const std::string& path);
  bench::Progress progress_of(LiveTable& live) const;
  int advise();
  /// Returns `finished`, the exit status that `finish` returned; `kUnreadable` instead of `kDone`
  /// if a capture was not read whole.
  int status_of(int finished) const { return finished == kDone && lost ? kUnreadable : finished; }

  bool lost = false;  ///< a capture could not be read whole
};

struct AdviseBench : AdviseCommand {
  std::vector<std::string> captures;

  int compare();
};

double mpps_a_core(const Tried& tried) { return 1000 / tried.ns_per_packet.median; }

bool is_as_fast(const Tried& one, const Tried& best) {
  return one.ns_per_packet.median <= best.mostly;
}

/// Returns why a combination was not chosen: its failure; or its round or time, and at most one
/// more difference from the best: waiting, memory, or the one scheme that differs.
std::string why_not(const Tried& one, const Tried& best) {
  if (!one.failed.empty()) return one.failed;
  const auto& [table, sharing, ageing] = one.combination;
  const double ns = one.ns_per_packet.median - best.ns_per_packet.median;
  std::string why;
  if (one.round <= bench::kRounds) {
    why = fmt::format("dropped out in round {}", one.round);
  } else if (is_as_fast(one, best)) {
    why = "as fast within the spread";
  } else {
    why = fmt::format("{} ns more", short_ns(ns));
  }
  if (one.waiting > 0.05 && one.waiting > 2 * best.waiting)
    return why +
           fmt::format("; its workers wait for each other {:.0f} % of the time", 100 * one.waiting);
  const bool same_table = table == best.combination.table;
  const bool same_sharing = sharing == best.combination.sharing;
  const bool same_ageing = ageing == best.combination.ageing;
  if (same_sharing && same_ageing && one.memory_bytes > best.memory_bytes + best.memory_bytes / 10)
    return why + fmt::format("; differs only in its table, with {:.0f} % more memory",
                             100.0 * static_cast<double>(one.memory_bytes) /
                                     static_cast<double>(best.memory_bytes) -
                                 100);
  if (same_sharing && same_ageing) return why + "; differs only in its table";
  if (same_table && same_sharing) return why + "; differs only in its ageing";
  if (same_table && same_ageing) return why + "; differs only in its sharing";
  return why;
}

std::string to_string(const Combination& is) {
  return fmt::format("table {}, sharing {}, ageing {}", is.table, is.sharing, is.ageing);
}

/// Returns true if the recommended table is the default, and `millrace run` by default chooses the
/// recommended sharing, also for interfaces of the kernel.
bool leaves_sharing_open(const Advice& advice, unsigned workers) {
  const Combination& best = advice.best().combination;
  const Combination elsewhere = bench::usual(workers, false);
  if (best.table != elsewhere.table || best.sharing != elsewhere.sharing) return false;
  return !advice.shared ||
         advice.shared->combination.sharing == bench::usual(workers, true).sharing;
}

/// Returns the line of the key `sharing`, or, if several workers are to use the default, a comment
/// in its place; and, if needed, a comment about interfaces of the kernel.
std::string sharing_toml(const Advice& advice, unsigned workers) {
  const Combination& best = advice.best().combination;
  if (leaves_sharing_open(advice, workers) && workers > 1)
    return fmt::format(
        "# By default sharing is \"{}\", and on the kernel's interfaces \"{}\"\n", best.sharing,
        advice.shared ? advice.shared->combination.sharing : bench::usual(workers, true).sharing);
  std::string toml = fmt::format("sharing = \"{}\"\n", best.sharing);
  if (!advice.shared) return toml;
  const auto& [table, sharing, ageing] = advice.shared->combination;
  if (advice.shared->combination == best) return toml;
  return toml + fmt::format(
                    "# On the kernel's interfaces workers share their tables. Recommended there:\n"
                    "# sharing = \"{}\", table.scheme = \"{}\", ageing.scheme = \"{}\"\n",
                    sharing, table, ageing);
}

/// Returns the configuration, with a comment about the measurement.
std::string to_toml(const Advice& advice, const AdviseCommand& command) {
  const Tried& best = advice.best();
  return fmt::format(
      "# By millrace advise: {}, {} worker{}, {:.1f} Mpps a core.\n"
      "# Runs as it is: millrace replay --config FILE --in CAPTURE\n"
      "# To run live, add ports and services: docs/run.md\n"
      "workers = {}\n{}\n"
      "[table]\nscheme = \"{}\"\ncapacity = {}\ncapacity_v6 = {}\n\n"
      "[ageing]\nscheme = \"{}\"\n",
      command.in, command.options.workers, command.options.workers == 1 ? "" : "s",
      mpps_a_core(best), command.options.workers, sharing_toml(advice, command.options.workers),
      best.combination.table, advice.capacity, advice.capacity_v6, best.combination.ageing);
}

void print_row(const Tried& one, const std::string& why) {
  const auto& [table, sharing, ageing] = one.combination;
  fmt::print("{:12} {:17} {:8}{:>20}{:>9}{:>9}  {}\n", table, sharing, ageing,
             one.ns_per_packet.median > 0 ? cell(one.ns_per_packet) : "",
             one.ns_per_packet.median > 0 ? fmt::format("{:+.0f} %", 100 * one.behind) : "",
             fmt::format("{:.1f}", static_cast<double>(one.memory_bytes) / (1 << 20)), why);
}

void print_head() {
  fmt::print("{:12} {:17} {:8}{:>20}{:>9}{:>9}\n", "table", "sharing", "ageing", "ns a packet",
             "behind", "MiB");
}

void print_trace(const Advice& advice, const std::string& in) {
  const auto& trace = advice.trace;
  fmt::print(
      "{}: {} packets of {:.0f} bytes in {:.1f} s; {} IPv4 and {} IPv6 connections, at most {} at "
      "once, {:.0f} begin a second\n",
      in, grouped(trace.packets), trace.bytes, trace.seconds, grouped(trace.connections_v4),
      grouped(trace.connections_v6), grouped(advice.peak), trace.begun_a_second);
  fmt::print(
      "{:.0f} % of the packets are their connection's first. For half of the other packets, at "
      "most {} other connections had packets since the previous packet of the packet's own "
      "connection; for 90 %, at most {}.\n"
      "The busiest 1 % of the connections have {:.0f} % of the packets.\n\n",
      100 * trace.first_packets, grouped(trace.reuse_median), grouped(trace.reuse_90),
      100 * trace.busiest);
}

/// Prints the limits of the recommendation: what was not measured, and where it does not hold.
void print_limits(const Advice& advice, const AdviseCommand& command) {
  if (advice.no_faster)
    fmt::print(
        "  This is millrace's default: {} was not faster by more than its turns differ from each "
        "other\n",
        to_string(*advice.no_faster));
  if (advice.packets_timed < advice.trace.packets)
    fmt::print(
        "  Only the capture's first {} packets were timed: give more --seconds to time more\n",
        grouped(advice.packets_timed));
  if (advice.late_in != 0)
    fmt::print(
        "  The time was up in {}: give more --seconds for a surer result\n",
        advice.late_in > bench::kRounds ? "the final" : fmt::format("round {}", advice.late_in));
  if (!advice.shared) return;
  const bool is_usual = advice.shared->combination == bench::usual(command.options.workers, true);
  fmt::print(
      "  On the kernel's interfaces (af_packet, af_xdp, tap), where workers share their tables:\n"
      "    {}, {} ns a packet here{}\n",
      to_string(advice.shared->combination), cell(advice.shared->ns_per_packet),
      is_usual ? "; it is the default there" : "");
}

void print(const Advice& advice, const AdviseCommand& command) {
  print_trace(advice, command.in);
  const Tried& best = advice.best();
  const unsigned workers = command.options.workers;
  fmt::print("Recommended: {}, {} worker{}\n", to_string(best.combination), workers,
             workers == 1 ? "" : "s");
  fmt::print(
      "  {:.1f} Mpps a core ({} ns a packet){}\n"
      "  room for {} IPv4 and {} IPv6 connections, at least twice as many as lived at once; {:.1f} "
      "MiB on {} pages\n"
      "  {:.1f} % of the served packets have an entry, with that room\n",
      mpps_a_core(best), cell(best.ns_per_packet),
      workers == 1 ? "" : fmt::format(", {:.1f} Mpps in all", workers * mpps_a_core(best)),
      grouped(advice.capacity), grouped(advice.capacity_v6),
      static_cast<double>(best.memory_bytes) / (1 << 20), to_string(best.pages),
      100 * advice.tracked);
  print_limits(advice, command);
  fmt::print("\nbehind: time above that of the best combination in the same round\n");
  print_head();
  // Combinations to show, the best first. Combinations that failed are shown, too, at the end.
  constexpr std::ptrdiff_t kShown = 20;
  std::ptrdiff_t shown = 0;
  for (const Tried& one : advice.tried) {
    if (++shown <= kShown || !one.failed.empty())
      print_row(one, &one == &best ? "recommended" : why_not(one, best));
  }
  const auto left_out = std::ranges::count_if(advice.tried | std::views::drop(kShown),
                                              [](const Tried& one) { return one.failed.empty(); });
  if (left_out > 0)
    fmt::print("... and {} more, which dropped out earlier or were slower: --json has them\n",
               left_out);
  if (command.out.empty()) fmt::print("\n{}", to_toml(advice, command));
}

Json to_json(const Combination& is) {
  return {{"table", is.table}, {"sharing", is.sharing}, {"ageing", is.ageing}};
}

Json to_json(const Tried& one) {
  Json line = to_json(one.combination);
  line["round"] = one.round;
  if (one.ns_per_packet.median > 0) {
    line.update(spread_json(one.ns_per_packet));
    line.update(Json{{"mpps_a_core", rounded(mpps_a_core(one), 3)},
                     {"behind", rounded(one.behind, 4)},
                     {"waiting", rounded(one.waiting, 4)},
                     {"memory_bytes", one.memory_bytes},
                     {"pages", to_string(one.pages)}});
  }
  if (!one.failed.empty()) line["failed"] = one.failed;
  return line;
}

Json to_json(const Advice& advice, const std::string& in) {
  const auto& trace = advice.trace;
  return {{"in", in},
          {"packets", trace.packets},
          {"keyless", trace.keyless},
          {"seconds", rounded(trace.seconds, 6)},
          {"bytes_a_packet", rounded(trace.bytes)},
          {"connections_v4", trace.connections_v4},
          {"connections_v6", trace.connections_v6},
          {"begun_a_second", rounded(trace.begun_a_second)},
          {"reuse_median", trace.reuse_median},
          {"reuse_90", trace.reuse_90},
          {"first_packets", rounded(trace.first_packets, 4)},
          {"busiest_share", rounded(trace.busiest, 4)},
          {"peak", advice.peak},
          {"packets_timed", advice.packets_timed},
          {"tracked", rounded(advice.tracked, 4)},
          {"capacity", advice.capacity},
          {"capacity_v6", advice.capacity_v6}};
}

Json options_json(const AdviceOptions& options) {
  return {{"workers", options.workers}, {"seconds", options.seconds}, {"burst", options.burst}};
}

/// Starts a thread that prints `what` after a second, unless the thread is stopped before.
std::jthread say_after_a_second(const std::string& what) {
  return std::jthread([what](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    if (!wake.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); }))
      say(fmt::format("millrace: {}\n", what));
  });
}

Result<Capture> AdviseCommand::load(const std::string& path) {
  exit_on_interrupt();
  const std::jthread note = quiet ? std::jthread() : say_after_a_second("reading " + path);
  auto capture = Capture::load(path);
  catch_interrupts();
  if (capture && !capture->loss().empty()) {
    say(fmt::format("millrace: warning: {}\n", capture->loss()));
    lost = true;
  }
  return capture;
}

/// Returns a `Progress` that updates `live`. If `live` shows no table, the `Progress` prints a line
/// for each step without a contender, unless `quiet`.
bench::Progress AdviseCommand::progress_of(LiveTable& live) const {
  bench::Progress shown = live.progress();
  if (quiet || live.shows()) return shown;
  return bench::Progress(
      [shown](const bench::Step& step) {
        if (step.who.empty()) say(fmt::format("millrace: {}\n", step.what));
        return shown(step);
      },
      [shown](std::string_view who, double value) { shown.seen(who, value); });
}

int AdviseCommand::advise() {
  if (same_file(out, in) || same_file(json, in))
    return fail(
        misused("--out, --json: " + in + " is the file of --in: give another file").error());
  if (same_file(out, json) || (out == "-" && json == "-"))
    return fail(misused("--json: " + json + " is the file of --out: give another file").error());
  if (!out.empty()) {
    if (auto ok = check_writable(out); !ok) return fail(ok.error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  warn_of_turns(options.workers);
  const auto capture = load(in);
  if (!capture) return fail(capture.error());
  LiveTable live(quiet, Unit::ns);
  const auto advice = bench::run_advice(*capture, options, progress_of(live));
  live.clear();
  if (!advice) return fail(advice.error());
  if (advice->tried.empty()) {
    warn("interrupted before anything was finished");
    return kInterrupted;
  }
  if (!advice->complete) warn("interrupted: the results of the finished rounds follow");
  if (!out.empty()) {
    if (auto ok = write_whole(out, to_toml(*advice, *this)); !ok) return fail(ok.error());
  }
  Json all = results_json("advise", advice->complete, options_json(options), options);
  all["options"].erase("repetitions");  // the search has a time limit instead
  all["capture"] = to_json(*advice, in);
  all["no_faster"] = advice->no_faster ? to_json(*advice->no_faster) : Json(nullptr);
  all["on_kernel_interfaces"] = advice->shared ? to_json(*advice->shared) : Json(nullptr);
  for (const Tried& one : advice->tried) all["results"].push_back(to_json(one));
  return status_of(finish(advice->complete, all, [&] { print(*advice, *this); }));
}

void print(const Exhausted& exhausted, const std::string& in) {
  const Tried& advised = exhausted.advised();
  const auto& [table, sharing, ageing] = advised.combination;
  fmt::print(
      "{}: {}, {}, {} was advised; among all {} combinations it takes {:.0f} % more time than the "
      "best\n",
      in, table, sharing, ageing, exhausted.all.size(), 100 * advised.behind);
  print_head();
  for (const Tried& one : exhausted.all) print_row(one, &one == &advised ? "advised" : one.failed);
  fmt::print("\n");
}

int AdviseBench::compare() {
  if (auto ok = each_once("--in", captures); !ok) return fail(ok.error());
  for (const std::string& path : captures) {
    if (same_file(json, path))
      return fail(misused("--json: " + path + " is a file of --in: give another file").error());
  }
  if (auto ok = begin(); !ok) return fail(ok.error());
  // Reads all captures before minutes are spent on the first.
  std::vector<Capture> loaded;
  for (const std::string& path : captures) {
    auto capture = load(path);
    if (!capture) return fail(capture.error());
    loaded.push_back(std::move(*capture));
  }
  warn_of_turns(options.workers);
  Json all = results_json("advise", true, options_json(options), options);
  std::vector<std::pair<std::string, Exhausted>> done;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const std::string& path = captures[i];
    LiveTable live(quiet, Unit::ns);
    auto exhausted = bench::run_exhaustive(loaded[i], options, live.progress());
    live.clear();
    if (!exhausted) return fail(exhausted.error());
    if (!exhausted->complete) {
      all["complete"] = false;
      break;
    }
    Json result{{"capture", to_json(exhausted->advice, path)},
                {"advised", to_json(exhausted->advised())},
                {"all", Json::array()}};
    for (const Tried& one : exhausted->all) result["all"].push_back(to_json(one));
    all["results"].push_back(std::move(result));
    done.emplace_back(path, std::move(*exhausted));
  }
  const bool complete = all["complete"];
  if (!complete) warn("interrupted: captures that are finished follow");
  return status_of(finish(complete, all, [&done] {
    for (const auto& [path, exhausted] : done) print(exhausted, path);
  }));
}

void AdviseCommand::add_options_to(CLI::App& command) {
  options.workers = processors();
  add_whole(command, "--workers", options.workers, "Workers", 1, Workers::kMost);
  command
      .add_option("--seconds", options.seconds,
                  "Time for the search, which ends at most 10 s later")
      ->check(number(0, 3600))
      ->capture_default_str()
      ->type_name("S");
  add_whole(command, "--burst", options.burst, "Packets a burst", 1, 64);
}

}  // namespace

void add_advise(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(std::string(kAdvise.name), std::string(kAdvise.what));
  const auto advise = std::make_shared<AdviseCommand>();
  command->add_option("--in", advise->in, "Capture to read: pcap or pcapng, - is standard input")
      ->check(not_empty())
      ->required()
      ->type_name("FILE");
  command->add_option("--out", advise->out, "Write the configuration; left out: it is shown")
      ->check(not_empty())
      ->type_name("FILE");
  advise->add_options_to(*command);
  advise->add_common_to(*command, advise->options);
  command->footer(
      "\nAn interrupt ends it early: the results of the finished rounds are used, and the\n"
      "exit status is 130.\n\nExample: millrace advise --in capture.pcap --out millrace.toml");
  command->callback([&run, advise] { run = [advise] { return advise->advise(); }; });
}

void add_bench_advise(CLI::App& bench, Run& run) {
  auto* command =
      bench.add_subcommand("advise", "The advice, against a trial of every combination");
  const auto advise = std::make_shared<AdviseBench>();
  command->add_option("--in", advise->captures, "Captures")
      ->delimiter(',')
      ->check(not_empty())
      ->required()
      ->type_name("FILE,...");
  advise->add_options_to(*command);
  advise->add_to(*command, advise->options);
  command->footer(
      "\nAn interrupt ends it early: captures that are finished are shown, and the exit status is "
      "130.\n\nExample: millrace bench advise --in a.pcap,b.pcap --workers 1 --json advise.json");
  command->callback([&run, command, advise] {
    if (advise->quick && command->count("--seconds") == 0) advise->options.seconds = 0;
    run = [advise] { return advise->compare(); };
  });
}

}  // namespace millrace::cli
