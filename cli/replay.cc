// `millrace replay`: a capture through the dataplane, as fast as one core goes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "command.h"
#include "common_options.h"
#include "function/balance/balance.h"
#include "interrupt.h"
#include "output.h"
#include "port/replay_port.h"
#include "progress.h"
#include "report.h"
#include "traffic/windows.h"
#include "worker/config.h"
#include "worker/line.h"

namespace millrace::cli {
namespace {

struct ReplayCommand {
  CommonOptions common;
  std::string in;
  std::string out;
  std::string config_path;
  std::string stats;
  std::string clock = "capture";
  unsigned windows = 1;
  std::uint32_t loops = 1;
  unsigned burst = 32;

  int run() const;

 private:
  Result<Config> read() const;
  Result<Capture> load(const Config& config) const;
  Result<ReplayPort> open_port(const Capture& capture) const;
  Result<int> replay() const;
  void warn(std::string_view message) const;
};

/// Virtual addresses and backends keep their places in every window.
template <class A>
std::function<bool(const A&)> keeps(const Config& config) {
  std::vector<A> kept;
  for (const auto& service : config.services.family<A>()) {
    if (service.two_way()) kept.push_back(service.address);
    if (!service.two_way() && !config.services_given) continue;
    for (const auto& backend : service.backends) kept.push_back(backend.address);
  }
  if (kept.empty()) return {};
  std::ranges::sort(kept);
  return [kept = std::move(kept)](const A& address) {
    return std::ranges::binary_search(kept, address);
  };
}

std::uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
}

void ReplayCommand::warn(std::string_view message) const {
  if (!common.quiet) fmt::print(stderr, "millrace: warning: {}\n", message);
}

Result<Config> ReplayCommand::read() const {
  auto config =
      config_path.empty() ? Result<Config>(Config{}) : read_config(config_path, scheme_names());
  if (config) common.apply_to(*config);
  return config;
}

Result<Capture> ReplayCommand::load(const Config& config) const {
  auto capture = Capture::load(in);
  if (!capture || windows == 1) return capture;
  return millrace::windows(*capture, windows, {keeps<AddressV4>(config), keeps<AddressV6>(config)});
}

Result<ReplayPort> ReplayCommand::open_port(const Capture& capture) const {
  const ReplayOptions options{.burst = burst,
                              .loops = loops,
                              .clock = clock == "wall" ? Clock::wall : Clock::capture,
                              .stop = &interrupted};
  if (out.empty()) return ReplayPort::create(capture, options);
  auto writer = CaptureWriter::create(out, capture.format());
  if (!writer) return std::unexpected(writer.error());
  return ReplayPort::create(capture, options, std::move(*writer));
}

Result<int> ReplayCommand::replay() const {
  auto config = read();
  if (!config) return std::unexpected(config.error());
  if (!stats.empty()) {
    if (auto ok = check_writable(stats); !ok) return std::unexpected(ok.error());
  }
  auto capture = load(*config);
  if (!capture) return std::unexpected(capture.error());
  auto port = open_port(*capture);
  if (!port) return std::unexpected(port.error());
  auto balance = Balance::create(common.balance_config(*config));
  if (!balance) return std::unexpected(balance.error());
  LineConfig line_config = common.line_config(*config);
  line_config.catch_up = clock == "capture";
  auto line = make_line(line_config, **balance);
  if (!line) return std::unexpected(line.error());

  RunReport report{.input = in, .config = line_config, .seed = common.seed};
  if (!capture->warning().empty()) report.warnings.push_back(capture->warning());
  catch_interrupts();
  {
    const Progress progress(common.quiet, "replaying", capture->size() * loops,
                            [&line] { return (*line)->counters().in.value(); });
    const auto start = std::chrono::steady_clock::now();
    (*line)->run(*port);
    report.elapsed_ns = nanoseconds_since(start) - port->output_ns();
  }
  if (auto ok = port->finish(); !ok) return std::unexpected(ok.error());

  report.line = line->get();
  report.balance = balance->get();
  report.interrupted = port->stopped();
  if (report.interrupted) {
    report.warnings.push_back(fmt::format("interrupted after {} of {} packets",
                                          (*line)->counters().in.value(), capture->size() * loops));
  }
  for (const auto& warning : report.warnings) warn(warning);
  if (stats != "-") fmt::print("{}", to_table(report));
  if (!stats.empty()) {
    if (auto ok = write_whole(stats, to_json(report).dump(2) + "\n"); !ok)
      return std::unexpected(ok.error());
  }
  return report.interrupted ? kInterrupted : kDone;
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
      ->required()
      ->type_name("FILE");
  command->add_option("--out", replay->out, "Write what leaves as pcap")->type_name("FILE");
  command
      ->add_option("--config", replay->config_path,
                   "Configuration; left out: everything to ten backends")
      ->type_name("FILE");
  command->add_option("--stats", replay->stats, "Write statistics as JSON; - in place of the table")
      ->type_name("FILE");
  command->add_option("--clock", replay->clock, "Time: capture (deterministic) or wall (for speed)")
      ->check(CLI::IsMember({"capture", "wall"}))
      ->capture_default_str();
  command->add_option("--windows", replay->windows, "Copies at once, addresses and ports shifted")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--loops", replay->loops, "Times to go through the same packets")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--burst", replay->burst, "Packets a burst")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  replay->common.add_to(*command);
  command->footer(
      "\nExample: millrace replay --in capture.pcap --out balanced.pcap --stats stats.json");
  command->callback([&run, replay] { run = [replay] { return replay->run(); }; });
}

}  // namespace millrace::cli
