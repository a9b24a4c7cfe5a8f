// `millrace run`: the dataplane on real interfaces, until it is told to end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "command.h"
#include "common_options.h"
#include "connections.h"
#include "control_server.h"
#include "huge_pages.h"
#include "interrupt.h"
#include "output.h"
#include "port/telemetry.h"
#include "reload_signal.h"
#include "report.h"
#include "take_over.h"
#include "validators.h"
#include "worker/config.h"
#include "worker/control.h"
#include "worker/live.h"
#include "worker/workers.h"

namespace millrace::cli {
namespace {

/// The numbers in an object, by the names of what they stand in.
void flatten(const nlohmann::ordered_json& object, const std::string& above,
             TelemetryTable& table) {
  for (const auto& [name, value] : object.items()) {
    std::string full = above;
    if (!full.empty()) full += '/';
    full += name;
    if (value.is_number_unsigned()) table.emplace_back(full, value.get<std::uint64_t>());
    if (value.is_object()) flatten(value, full, table);
  }
}

/// Parts of the statistics, to DPDK's tools.
Result<Telemetry> serve_telemetry(Control& asked,
                                  const std::function<nlohmann::ordered_json()>& make_stats) {
  const auto part = [&asked, make_stats](const std::string& name) {
    return [&asked, make_stats, name] {
      TelemetryTable table;
      asked.alone([&] { flatten(make_stats()[name], "", table); });
      return table;
    };
  };
  const auto by_name = [&asked, make_stats] {
    TelemetryTable table;
    asked.alone([&] {
      const nlohmann::ordered_json stats = make_stats();
      for (const auto& backend : stats["backends"]) {
        flatten(backend,
                backend["service"].get<std::string>() + "/" + backend["address"].get<std::string>(),
                table);
      }
    });
    return table;
  };
  return Telemetry::serve(
      {{"/millrace/packets", "Packets, by what became of them", part("packets")},
       {"/millrace/connections", "Connections that were opened, live and ended",
        part("connections")},
       {"/millrace/backends", "What each backend of each service got", by_name}});
}

struct RunCommand {
  std::string config_path;
  std::string stats;
  std::string connections;
  std::string control;
  std::vector<std::string> eal_options;
  bool takes_over = false;
  bool quiet = false;

  int run() const;

 private:
  static constexpr std::string_view kNoControl = "none";

  Result<int> live() const;
  Result<void> check_outputs() const;
  std::string socket() const { return control.empty() ? default_socket() : control; }
  Result<std::unique_ptr<ControlServer>> listen(Control& asked,
                                                std::function<nlohmann::ordered_json()> make_stats,
                                                bool replaces) const;
  void reload(Control& asked) const;
  void note(std::string_view message) const {
    if (!quiet) say(fmt::format("millrace: {}\n", message));
  }
};

/// "outside (af_packet:eth0, 02:00:00:00:00:01, MTU 1500)".
std::string describe(const Config::Port& port, const Devices& devices, std::size_t number) {
  const Mac mac = devices.mac(number);
  return fmt::format("{} ({}, {:02x}, MTU {})", port.name, to_string(port.device),
                     fmt::join(mac.bytes, ":"), devices.mtu(number));
}

Result<void> RunCommand::check_outputs() const {
  for (const std::string& path : {stats, connections}) {
    if (path.empty()) continue;
    if (same_file(path, config_path))
      return std::unexpected(
          Error{path + " is the file of --config: give another file", Error::Kind::usage});
    if (auto ok = check_writable(path); !ok) return std::unexpected(ok.error());
  }
  if (same_file(connections, stats) || (connections == "-" && stats == "-"))
    return std::unexpected(
        Error{"--connections and --stats are the same: give another file", Error::Kind::usage});
  if (takes_over && control == kNoControl)
    return std::unexpected(Error{
        "--take-over needs the control socket of the running millrace: leave --control none out",
        Error::Kind::usage});
  return {};
}

/// Whether two processes can have all devices at once. Then none of their packets is lost while one
/// takes over from the other.
bool can_share_devices(const Config& config) {
  return std::ranges::all_of(config.live.ports, [](const Config::Port& port) {
    return port.device.kind == DeviceKind::af_packet || port.device.kind == DeviceKind::null;
  });
}

Result<int> RunCommand::live() const {
  // The one that ends has its devices so long, at most: on a busy machine the kernel takes seconds
  // to close packet sockets.
  constexpr std::chrono::seconds kPatience{60};
  ReloadSignal::block();
  catch_interrupts();
  if (auto ok = check_outputs(); !ok) return std::unexpected(ok.error());
  const auto config = read_config(config_path, scheme_names());
  if (!config) return std::unexpected(config.error());
  if (auto ok = check_live(*config); !ok) return std::unexpected(ok.error());
  if (auto ok = check_spread(*config); !ok) return std::unexpected(ok.error());
  LineConfig line = line_config(*config);
  line.secret = Secret::random();
  if (auto ok = check_schemes(line); !ok) return std::unexpected(ok.error());

  std::unique_ptr<TakeOver> take_over;
  if (takes_over) {
    auto begun = TakeOver::begin(socket());
    if (!begun) return std::unexpected(begun.error());
    take_over = std::move(*begun);
    if (take_over == nullptr)
      note("nobody listens at " + socket() + ": there is nothing to take over");
  }
  const bool is_beside = take_over != nullptr && can_share_devices(*config);
  const auto owners = make_owners(*config, Secret::random());
  std::unique_ptr<Live> live;
  const auto open_live = [&](const DeviceClaim& claim) -> Result<void> {
    auto opened = Live::open(
        *config,
        {.owners = owners, .eal_options = eal_options, .stop = &interrupted, .claim = claim});
    if (!opened) return std::unexpected(opened.error());
    live = std::move(*opened);
    if (take_over != nullptr) take_over->inherit(*live);
    return {};
  };
  if (take_over == nullptr || is_beside) {
    const DeviceClaim beside{.patience = std::nullopt};
    if (auto ok = open_live(is_beside ? beside : DeviceClaim{}); !ok)
      return std::unexpected(ok.error());
  }
  BalanceConfig balance = balance_config(*config);
  if (take_over != nullptr)
    balance.services = with_those_of(take_over->offer(), std::move(balance.services));
  auto workers = Workers::create(config->workers, line, balance, config->spread.entries);
  if (!workers) return std::unexpected(workers.error());
  if (take_over != nullptr) {
    if (auto ok = take_over->start(*workers, owners); !ok) return std::unexpected(ok.error());
    if (is_beside) {
      if (auto ok = live->start(); !ok) return std::unexpected(ok.error());
      live->devices().discard();
    }
    if (auto ok = take_over->stop_the_other(); !ok) return std::unexpected(ok.error());
    if (!is_beside) {
      if (auto ok = take_over->let_the_other_end(); !ok) return std::unexpected(ok.error());
      if (auto ok = open_live({.patience = kPatience}); !ok) return std::unexpected(ok.error());
    }
  }
  const auto report_now = [&] {
    RunReport report{.input = config_path,
                     .workers = &*workers,
                     .live = live.get(),
                     .config = line,
                     .spread = config->spread};
    for (const Config::Port& port : config->live.ports) report.ports.push_back(port.name);
    for (unsigned n = 0; n < workers->count(); ++n) report.times.push_back(workers->time(n));
    return report;
  };
  Control asked(*workers, *live, *config, config_path, scheme_names(),
                [] { interrupted.store(true); });
  if (take_over != nullptr) {
    if (auto ok = asked.resume(take_over->offer()); !ok) return std::unexpected(ok.error());
    if (is_beside) {
      if (auto ok = take_over->let_the_other_end(); !ok) return std::unexpected(ok.error());
    }
  }
  auto server = listen(asked, [&] { return to_json(report_now()); }, take_over != nullptr);
  if (!server) return std::unexpected(server.error());
  if (!is_beside) {
    if (auto ok = live->start(); !ok) return std::unexpected(ok.error());
  }
  std::optional<std::jthread> claiming;
  if (is_beside) {
    claiming.emplace([&] {
      const auto until = std::chrono::steady_clock::now() + kPatience;
      while (!interrupted) {
        const auto ok = live->devices().claim(std::chrono::milliseconds(100));
        if (ok) return;
        if (std::chrono::steady_clock::now() < until) continue;
        return note("warning: " + ok.error().message);
      }
    });
  }
  const auto telemetry = serve_telemetry(asked, [&] { return to_json(report_now()); });
  if (!telemetry) return std::unexpected(telemetry.error());
  const ReloadSignal signal([&] { reload(asked); });
  if (live->devices().pages() == Pages::small)
    note("warning: packets lie on small pages, which is slower: " +
         huge_pages_hint(std::size_t{256} << 20, Pages::huge));
  for (std::size_t n = 0; n < config->live.ports.size(); ++n)
    note("port " + describe(config->live.ports[n], live->devices(), n));
  if (take_over != nullptr) {
    note(fmt::format("took over {} connections; {} were left behind", take_over->connections(),
                     take_over->left_behind()));
  }
  note(fmt::format("running with {} worker{}; Ctrl-C ends it", config->workers,
                   config->workers == 1 ? "" : "s"));
  const std::vector<Port*> ports = live->ports();
  if (auto ok = workers->run(ports); !ok) return std::unexpected(ok.error());
  claiming.reset();
  if (asked.has_let_go()) {
    note("another process has taken over");
    for (std::size_t d = 0; d < live->devices().count(); ++d) live->devices().restore(d, {});
  }
  server->reset();

  const RunReport report = report_now();
  if (!connections.empty()) {
    if (auto ok = write_whole(connections, connections_text(*workers)); !ok)
      return std::unexpected(ok.error());
  }
  if (!stats.empty()) {
    if (auto ok = write_whole(stats, to_text(to_json(report))); !ok)
      return std::unexpected(ok.error());
  }
  if (stats != "-" && connections != "-") fmt::print("{}", to_table(report));
  return kDone;
}

Result<std::unique_ptr<ControlServer>> RunCommand::listen(
    Control& asked, std::function<nlohmann::ordered_json()> make_stats, bool replaces) const {
  if (control == kNoControl) return nullptr;
  return ControlServer::start(asked, std::move(make_stats), socket(), replaces);
}

void RunCommand::reload(Control& asked) const {
  asked.wait_until_ready();
  const auto is = asked.reload();
  if (!is) {
    say("millrace: nothing has changed:\n" + is.error().message + "\n");
  } else {
    note(fmt::format("reloaded {}: {} services, {} backends", config_path, is->services,
                     is->backends));
  }
}

int RunCommand::run() const {
  const auto status = live();
  return status ? *status : fail(status.error());
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("run", "Forward packets between interfaces, until Ctrl-C");
  const auto live = std::make_shared<RunCommand>();
  command->add_option("-c,--config", live->config_path, "Configuration, with ports and services")
      ->check(not_empty())
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--stats", live->stats,
                   "At the end, write statistics as JSON; - in place of the table")
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option(
          "--connections", live->connections,
          "At the end, write the live connections, a JSON object a line; - in place of the table")
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option(
          "--control", live->control,
          fmt::format("Unix socket for millctl; \"{}\" for none; {}", "none", default_socket()))
      ->check(not_empty())
      ->type_name("PATH");
  command->add_flag(
      "--take-over", live->takes_over,
      "Go on in place of the millrace that listens at the control socket, if one does, "
      "with its connections");
  command->add_flag("--quiet", live->quiet, "No notes on standard error");
  command->add_option("eal", live->eal_options, "After --: options for DPDK's environment (EAL)")
      ->type_name("EAL_OPTION");
  command->footer("\nExample: millrace run --config balance.toml");
  command->callback([&run, live] { run = [live] { return live->run(); }; });
}

}  // namespace millrace::cli
