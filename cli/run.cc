// `millrace run`: the dataplane on real interfaces, until it is told to end.
#include <fmt/format.h>

#include <memory>
#include <string>
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
  bool quiet = false;

  int run() const;

 private:
  static constexpr std::string_view kNoControl = "none";

  Result<int> live() const;
  Result<std::unique_ptr<ControlServer>> listen(
      Control& asked, std::function<nlohmann::ordered_json()> make_stats) const;
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

Result<int> RunCommand::live() const {
  ReloadSignal::block();
  catch_interrupts();
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
  const auto config = read_config(config_path, scheme_names());
  if (!config) return std::unexpected(config.error());
  if (auto ok = check_live(*config); !ok) return std::unexpected(ok.error());
  if (auto ok = check_spread(*config); !ok) return std::unexpected(ok.error());
  LineConfig line = line_config(*config);
  line.secret = Secret::random();
  if (auto ok = check_schemes(line); !ok) return std::unexpected(ok.error());

  auto live = Live::open(
      *config,
      {.spread_secret = Secret::random(), .eal_options = eal_options, .stop = &interrupted});
  if (!live) return std::unexpected(live.error());
  auto workers =
      Workers::create(config->workers, line, balance_config(*config), config->spread.entries);
  if (!workers) return std::unexpected(workers.error());
  if ((*live)->devices().pages() == Pages::small)
    note("warning: packets lie on small pages, which is slower: " +
         huge_pages_hint(std::size_t{256} << 20, Pages::huge));
  const auto report_now = [&] {
    RunReport report{.input = config_path,
                     .workers = &*workers,
                     .live = live->get(),
                     .config = line,
                     .spread = config->spread};
    for (const Config::Port& port : config->live.ports) report.ports.push_back(port.name);
    for (unsigned n = 0; n < workers->count(); ++n) report.times.push_back(workers->time(n));
    return report;
  };
  Control asked(*workers, **live, *config, config_path, scheme_names());
  auto server = listen(asked, [&] { return to_json(report_now()); });
  if (!server) return std::unexpected(server.error());
  const auto telemetry = serve_telemetry(asked, [&] { return to_json(report_now()); });
  if (!telemetry) return std::unexpected(telemetry.error());
  const ReloadSignal signal([&] { reload(asked); });
  if (auto ok = (*live)->start(); !ok) return std::unexpected(ok.error());
  for (std::size_t n = 0; n < config->live.ports.size(); ++n)
    note("port " + describe(config->live.ports[n], (*live)->devices(), n));
  note(fmt::format("running with {} worker{}; Ctrl-C ends it", config->workers,
                   config->workers == 1 ? "" : "s"));
  const std::vector<Port*> ports = (*live)->ports();
  if (auto ok = workers->run(ports); !ok) return std::unexpected(ok.error());
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
    Control& asked, std::function<nlohmann::ordered_json()> make_stats) const {
  if (control == kNoControl) return nullptr;
  return ControlServer::start(asked, std::move(make_stats),
                              control.empty() ? default_socket() : control);
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
  command->add_flag("--quiet", live->quiet, "No notes on standard error");
  command->add_option("eal", live->eal_options, "After --: options for DPDK's environment (EAL)")
      ->type_name("EAL_OPTION");
  command->footer("\nExample: millrace run --config balance.toml");
  command->callback([&run, live] { run = [live] { return live->run(); }; });
}

}  // namespace millrace::cli
