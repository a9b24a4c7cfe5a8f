// `millrace replay`: sends a capture through the dataplane, as fast as its workers go.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "command_line/huge_pages.h"
#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "command_line/validators.h"
#include "commands.h"
#include "common_options.h"
#include "config/config.h"
#include "control/connections.h"
#include "core/address.h"
#include "core/processors.h"
#include "port/replay_port.h"
#include "progress.h"
#include "report.h"
#include "shard/split.h"
#include "traffic/windows.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

/// The part of a capture that each worker serves; none: the whole capture.
using Parts = std::vector<std::optional<CapturePart>>;

/// The ports of all workers, and the output that they share.
struct Ports {
  std::unique_ptr<CaptureOutput> output;  // null: no capture is written
  std::vector<ReplayPort> all;

  bool stopped() const { return std::ranges::any_of(all, &ReplayPort::stopped); }
};

/// A capture as it is replayed, and warnings about the file that it was read from.
struct Loaded {
  Capture capture;
  std::string loss;   ///< the part that was not read; empty: the whole file was read
  std::string clock;  ///< steps of the capture's clock; empty: there are none
};

struct ReplayCommand {
  CommonOptions common;
  std::string in;
  std::string out;
  std::string config_path;
  std::string stats;
  std::string connections;
  std::string clock = "capture";
  unsigned windows = 1;
  std::uint32_t loops = 1;
  unsigned burst = 32;

  int run() const;

 private:
  Result<void> check_files() const;
  Result<Config> read() const;
  Result<Loaded> load(const Config& config) const;
  Result<Parts> divide(const Capture& capture, const Config& config, const Workers& workers) const;
  Result<Ports> open_ports(const Capture& capture, Parts parts) const;
  std::optional<std::string> small_pages(const Workers& workers) const;
  Result<int> replay() const;
  Result<int> show(const RunReport& report) const;
  void warn(std::string_view message) const;
  bool writes_to_standard_output() const { return !out.empty() && is_standard_output(out); }
};

/// Returns a predicate that is true for addresses which stay the same in every window: those that
/// the configured function serves, and those that it sends packets to. Empty if every address is
/// shifted, as for a function that serves everything.
template <class A>
std::function<bool(const A&)> keeps(const Config& config) {
  constexpr unsigned kWhole = 8 * A::kBytes;
  if (!config.function->facts().missing.empty()) return {};
  HostAddresses<AddressV4> v4;
  HostAddresses<AddressV6> v6;
  config.function->tell(v4, v6);
  const HostAddresses<A>& told = of_family<A>(v4, v6);
  std::map<unsigned, std::vector<A>> kept;  // sorted prefixes by their length
  for (const auto& prefix : told.served) {
    if (prefix.bits > 0) kept[prefix.bits].push_back(prefix.address);
  }
  for (const auto* all : {&told.virtual_addresses, &told.destinations})
    kept[kWhole].insert(kept[kWhole].end(), all->begin(), all->end());
  if (kept.at(kWhole).empty()) kept.erase(kWhole);
  if (kept.empty()) return {};
  for (auto& [bits, prefixes] : kept) std::ranges::sort(prefixes);
  return [kept = std::move(kept)](const A& address) {
    return std::ranges::any_of(kept, [&address](const auto& of_length) {
      const auto& [bits, prefixes] = of_length;
      return std::ranges::binary_search(prefixes, prefix_of(address, bits));
    });
  };
}

void ReplayCommand::warn(std::string_view message) const {
  if (!common.quiet) say(fmt::format("millrace: warning: {}\n", message));
}

/// Checks that no file is written twice, or both read and written. Errors: usage, or a file cannot
/// be written.
Result<void> ReplayCommand::check_files() const {
  const auto refuse = [](std::string_view option, const std::string& path, std::string_view what) {
    return std::unexpected(Error{fmt::format("{}: {} is {}: give another file", option, path, what),
                                 Error::Kind::usage});
  };
  if (!out.empty()) {
    if (auto ok = check_no_terminal("--out", out); !ok) return ok;
  }
  for (const auto& [option, path] :
       {std::pair{"--stats", &stats}, std::pair{"--connections", &connections}}) {
    if (writes_to_standard_output() && !path->empty() && is_standard_output(*path))
      return refuse(option, *path, "standard output, where the capture of --out goes");
  }
  if (same_file(out, stats)) return refuse("--out", out, "the file of --stats");
  if (same_file(connections, out)) return refuse("--connections", connections, "the file of --out");
  if (same_file(connections, stats) || (connections == "-" && stats == "-"))
    return refuse("--connections", connections, "the file of --stats");
  for (const auto& [option, path] : {std::pair{"--out", &out}, std::pair{"--stats", &stats},
                                     std::pair{"--connections", &connections}}) {
    if (same_file(*path == "-" ? "/dev/stdout" : *path, in == "-" ? "/dev/stdin" : in))
      return refuse(option, *path, "the file of --in");
    if (same_file(*path, config_path)) return refuse(option, *path, "the file of --config");
  }
  for (const std::string& path : {out, stats, connections}) {
    if (path.empty()) continue;
    if (auto ok = check_writable(path); !ok) return ok;
  }
  return {};
}

Result<Config> ReplayCommand::read() const {
  auto config =
      config_path.empty() ? Result<Config>(Config{}) : read_config(config_path, scheme_names());
  if (!config) return config;
  common.apply_to(*config);
  if (auto ok = check_spread(*config); !ok) return std::unexpected(ok.error());
  if (auto ok = check_schemes(common.line_config(*config)); !ok) return std::unexpected(ok.error());
  return config;
}

Result<Loaded> ReplayCommand::load(const Config& config) const {
  auto capture = Capture::load(in);
  if (!capture) return std::unexpected(capture.error());
  Loaded loaded{.capture = Capture(CaptureFormat{}), .loss = capture->loss(), .clock = {}};
  if (const std::string steps = capture->clock().steps(); clock == "capture" && !steps.empty())
    loaded.clock = fmt::format("{}: {}", in == "-" ? "standard input" : in, steps);
  if (windows > 1) {
    capture =
        millrace::windows(*capture, windows, {keeps<AddressV4>(config), keeps<AddressV6>(config)});
    if (!capture) return std::unexpected(capture.error());
  }
  loaded.capture = std::move(*capture);
  return loaded;
}

/// Divides the capture among the workers. A single worker gets all of it.
Result<Parts> ReplayCommand::divide(const Capture& capture, const Config& config,
                                    const Workers& workers) const {
  const unsigned count = workers.count();
  Parts parts(count);
  if (count == 1) return parts;
  const auto spread = spread_named(config.spread.scheme)->create(common.spread_secret());
  const Indirection indirection(config.spread.entries, count);
  auto entries = shards_of(capture, *spread, indirection, workers.steering());
  if (!entries) return std::unexpected(entries.error());
  std::ranges::move(split(*entries, indirection, count), parts.begin());
  return parts;
}

Result<Ports> ReplayCommand::open_ports(const Capture& capture, Parts parts) const {
  Ports ports;
  if (!out.empty()) {
    CaptureFormat format = capture.format();
    format.beyond_2106 |= latest_timestamp_ns(capture, loops) / 1'000'000'000 >= kPcapSeconds;
    auto writer = CaptureWriter::create(writes_to_standard_output() ? "-" : out, format);
    if (!writer) return std::unexpected(writer.error());
    ports.output =
        std::make_unique<CaptureOutput>(std::move(*writer), static_cast<unsigned>(parts.size()));
  }
  const ReplayOptions options{.burst = burst,
                              .loops = loops,
                              .clock = clock == "wall" ? Clock::wall : Clock::capture,
                              .stop = &interrupted};
  for (auto& part : parts) {
    auto port = ReplayPort::create(capture, options, ports.output.get(), std::move(part));
    if (!port) return std::unexpected(port.error());
    ports.all.push_back(std::move(*port));
  }
  return ports;
}

/// Returns a warning if there are more workers than processors.
std::optional<std::string> too_many_workers(unsigned workers) {
  if (workers <= processors()) return std::nullopt;
  return fmt::format(
      "{} workers take turns on {} processors: with --workers {} each worker has a processor of "
      "its own",
      workers, processors(), processors());
}

/// Returns a warning with the highest watermark that a table has reached; none if no table has
/// reached one.
std::optional<std::string> full_tables(const WorkerCounters& counters) {
  for (std::size_t w = kWatermarks; w-- > 0;) {
    if (counters.over_watermark[w].value() == 0) continue;
    return fmt::format(
        "a table filled to {} % of its capacity or more ({} times): give a larger --capacity",
        kWatermarkPercent[w], counters.over_watermark[w].value());
  }
  return std::nullopt;
}

/// Returns a warning if the tables would be faster on larger pages than they got.
std::optional<std::string> ReplayCommand::small_pages(const Workers& workers) const {
  std::size_t bytes = 0;
  bool small = false;
  for (const TableReport& table : {workers.report_v4(), workers.report_v6()}) {
    bytes += table.memory_bytes;
    small |= table.pages == Pages::small && table.memory_bytes > kWorthHugePages;
  }
  if (common.pages == "small" || !small) return std::nullopt;
  return fmt::format("the tables ({} MiB) lie on small pages, which is slower: {}", bytes >> 20,
                     huge_pages_hint(bytes, *pages_named(common.pages)));
}

Result<int> ReplayCommand::replay() const {
  catch_interrupts();
  auto config = read();
  if (!config) return std::unexpected(config.error());
  if (auto ok = check_files(); !ok) return std::unexpected(ok.error());

  exit_on_interrupt();  // no file is begun until the tables are ready
  auto loaded = load(*config);
  if (!loaded) return std::unexpected(loaded.error());
  const Capture* const capture = &loaded->capture;
  LineConfig line_config = common.line_config(*config);
  line_config.catch_up = clock == "capture";
  FunctionRun run = common.function_run(*config);
  run.capture_ms = std::max<std::uint64_t>(capture->clock().first_ns() / 1'000'000, 1);
  auto workers =
      Workers::create(config->workers, line_config, config->function, run, config->spread.entries);
  if (!workers) return std::unexpected(workers.error());
  auto parts = divide(*capture, *config, *workers);
  if (!parts) return std::unexpected(parts.error());

  catch_interrupts();
  auto ports = open_ports(*capture, std::move(*parts));
  if (!ports) return std::unexpected(ports.error());
  if (interrupted) return kInterrupted;
  RunReport report{.input = in,
                   .workers = &*workers,
                   .config = line_config,
                   .spread = config->spread,
                   .seed = common.seed,
                   .is_configured = config->function->facts().missing.empty()};
  for (const std::string& line : {loaded->loss, loaded->clock}) {
    if (!line.empty()) report.warnings.push_back(line);
  }
  report.loss = loaded->loss;
  std::ranges::copy(doubts(*config), std::back_inserter(report.warnings));
  if (auto warning = small_pages(*workers)) report.warnings.push_back(std::move(*warning));
  if (auto warning = too_many_workers(config->workers))
    report.warnings.push_back(std::move(*warning));
  {
    const Progress progress(common.quiet, "replaying", capture->size() * loops,
                            [&workers] { return workers->counters().in.value(); });
    std::vector<Port*> pointers;
    for (ReplayPort& port : ports->all) pointers.push_back(&port);
    if (auto ok = workers->run(pointers); !ok) return std::unexpected(ok.error());
  }
  for (unsigned n = 0; n < workers->count(); ++n) {
    Workers::Time time = workers->time(n);
    time.elapsed_ns -= ports->all[n].output_ns();
    report.times.push_back(time);
  }
  if (ports->output) {
    if (auto ok = ports->output->finish(); !ok) return std::unexpected(ok.error());
  }

  if (auto warning = full_tables(workers->counters()))
    report.warnings.push_back(std::move(*warning));
  report.interrupted = ports->stopped();
  if (report.interrupted) {
    report.warnings.push_back(fmt::format("interrupted after {} of {} packets",
                                          workers->counters().in.value(), capture->size() * loops));
  }
  if (!connections.empty()) {
    if (auto ok = write_whole(connections, connections_text(*workers)); !ok)
      return std::unexpected(ok.error());
  }
  return show(report);
}

/// Writes and prints the results, files first, since standard output may be closed at any time.
Result<int> ReplayCommand::show(const RunReport& report) const {
  if (!stats.empty()) {
    if (auto ok = write_whole(stats, to_text(to_json(report))); !ok)
      return std::unexpected(ok.error());
  }
  if (!report.loss.empty()) say(fmt::format("millrace: warning: {}\n", report.loss));
  for (const auto& warning : report.warnings) {
    if (warning != report.loss) warn(warning);
  }
  if (writes_to_standard_output()) {
    if (!common.quiet) say(to_table(report));
  } else if (stats != "-" && connections != "-") {
    fmt::print("{}", to_table(report));
  }
  if (report.interrupted) return kInterrupted;
  return report.loss.empty() ? kDone : kUnreadable;
}

int ReplayCommand::run() const {
  const auto status = replay();
  return status ? *status : fail(status.error());
}

}  // namespace

void add_replay(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("replay", "Run a capture through the dataplane");
  const auto replay = std::make_shared<ReplayCommand>();
  command->add_option("--in", replay->in, "Capture to read: pcap or pcapng, - is standard input")
      ->check(not_empty())
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--out", replay->out,
          "Write the packets that leave, as pcap, or as pcapng where pcap cannot hold them; - is "
          "standard output: the table then goes to standard error")
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option("--config", replay->config_path,
                   "Configuration; without it all traffic goes to ten backends")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_option("--stats", replay->stats, "Write statistics as JSON; - in place of the table")
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option("--connections", replay->connections,
                   "Write the connections live at the end, a JSON object a line; - in place of "
                   "the table")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_option("--clock", replay->clock, "Time: capture (deterministic) or wall (for speed)")
      ->check(one_of({"capture", "wall"}))
      ->capture_default_str();
  command
      ->add_option("--windows", replay->windows,
                   "Copies of the capture at the same time, with shifted addresses and ports")
      ->check(whole_number(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--loops", replay->loops, "Times to go through the same packets")
      ->check(whole_number(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--burst", replay->burst, "Packets a burst")
      ->check(whole_number(1, 64))
      ->type_name("N")
      ->capture_default_str();
  replay->common.add_to(*command);
  command->footer(
      "\nThe key `function` or `chain` of the configuration says what is done with packets: "
      "millrace schemes lists functions.\n"
      "\nExample: millrace replay --in capture.pcap --out balanced.pcap --stats stats.json");
  command->callback([&run, replay] { run = [replay] { return replay->run(); }; });
}

}  // namespace millrace::cli
