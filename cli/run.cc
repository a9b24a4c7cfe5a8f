// `millrace run`: its options, the check of a configuration, and the results at the end.
#include <fmt/format.h>
#include <malloc.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "command_line/validators.h"
#include "commands.h"
#include "common_options.h"
#include "config/config.h"
#include "control/connections.h"
#include "control/control_server.h"
#include "live_run.h"
#include "reload_signal.h"
#include "report.h"
#include "service_manager.h"

namespace millrace::cli {
namespace {

struct RunCommand {
  std::string config_path;
  std::string check_path;
  std::string stats;
  std::string connections;
  LiveRun::Options options;

  int run() const;

 private:
  Result<void> check() const;
  Result<int> live() const;
  Result<void> check_outputs() const;
  Result<void> write(LiveRun& run) const;
};

/// Makes all threads share one heap. Requests and reloads run on threads of a pool: glibc would
/// give each thread a heap, and memory freed in one heap is not reused in another. Blocks of 64 KiB
/// and more, such as the tables of services, go back to the system when they are freed.
void share_one_heap() {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
#endif
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
        Error{"--connections and --stats name the same file: give two files", Error::Kind::usage});
  if (options.takes_over && options.control == LiveRun::kNoControl)
    return std::unexpected(Error{
        "--take-over needs the control socket of the running millrace: leave --control none out",
        Error::Kind::usage});
  return {};
}

/// Checks the configuration of --check without touching a device. Errors: the file cannot be read;
/// or usage, with the problems that were found.
Result<void> RunCommand::check() const {
  const auto config = read_config(check_path, scheme_names());
  if (!config) return std::unexpected(config.error());
  std::string wrong;
  const auto look = [&](const auto& found) {
    if (!found)
      wrong.append(wrong.empty() ? "" : "\n").append(in_file(check_path, found.error().message));
  };
  look(check_live(*config));
  look(check_spread(*config));
  look(check_schemes(line_config(*config)));
  if (config->servers) look(read_servers_key(*config->servers));
  FunctionRun as_it_is = function_run(*config);
  as_it_is.workers = config->workers;
  look(config->function->kind().deploy(config->function, as_it_is));
  if (!wrong.empty()) return std::unexpected(Error{wrong, Error::Kind::usage});
  for (const std::string& doubt : doubts(*config)) say("millrace: warning: " + doubt + "\n");
  auto counts = config->function->facts().counts;
  counts.insert(counts.begin(), {"port", config->live.ports.size()});
  fmt::print("{} is good: {} (interfaces were not looked at)\n", check_path, counts_text(counts));
  return {};
}

Result<int> RunCommand::live() const {
  share_one_heap();
  ReloadSignal::block();
  catch_interrupts();
  if (auto ok = check_outputs(); !ok) return std::unexpected(ok.error());
  auto config = read_config(config_path, scheme_names());
  if (!config) return std::unexpected(config.error());
  auto run = LiveRun::create(std::move(*config), config_path, options);
  if (!run) return std::unexpected(run.error());
  if (auto ok = (*run)->start(); !ok) {
    if (!interrupted) return std::unexpected(ok.error());
    fail(ok.error());
    return kInterrupted;
  }
  tell_service_manager_ready();
  if (auto ok = (*run)->forward(); !ok) return std::unexpected(ok.error());
  if (auto ok = write(**run); !ok) return std::unexpected(ok.error());
  return kDone;
}

/// Writes the results at the end: connections, statistics, the table.
Result<void> RunCommand::write(LiveRun& run) const {
  const RunReport report = run.report();
  if (!connections.empty()) {
    if (auto ok = write_whole(connections, connections_text(run.workers())); !ok) return ok;
  }
  if (!stats.empty()) {
    if (auto ok = write_whole(stats, to_text(to_json(report))); !ok) return ok;
  }
  if (stats != "-" && connections != "-") fmt::print("{}", to_table(report));
  return {};
}

int RunCommand::run() const {
  if (!check_path.empty()) {
    const auto good = check();
    return good ? kDone : fail(good.error());
  }
  const auto status = live();
  return status ? *status : fail(status.error());
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("run", "Forward packets between interfaces, until Ctrl-C");
  const auto live = std::make_shared<RunCommand>();
  auto* config = command
                     ->add_option("-c,--config", live->config_path,
                                  "Configuration: ports, and what is done with packets")
                     ->check(not_empty())
                     ->type_name("FILE");
  command
      ->add_option("--check", live->check_path,
                   "Only say what is wrong with a configuration; touch nothing, run nothing")
      ->check(not_empty())
      ->excludes(config)
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
      ->add_option("--control", live->options.control,
                   fmt::format("Unix socket for millctl; \"{}\" for none; {}", LiveRun::kNoControl,
                               default_socket()))
      ->check(not_empty())
      ->type_name("PATH");
  command->add_flag(
      "--take-over", live->options.takes_over,
      "Go on in place of the millrace that listens at the control socket, if one does, "
      "with its connections");
  command->add_flag("--quiet", live->options.quiet, "No notes on standard error");
  command
      ->add_option("eal", live->options.eal_options,
                   "After --: options for DPDK's environment (EAL)")
      ->type_name("EAL_OPTION");
  command->footer(
      "\nThe key `function` or `chain` of the configuration says what is done with packets: "
      "millrace schemes lists functions.\n"
      "\nExample: millrace run --config two-ports.toml");
  command->callback([&run, live, config] {
    if (live->config_path.empty() && live->check_path.empty())
      throw CLI::RequiredError(config->get_name());
    run = [live] { return live->run(); };
  });
}

}  // namespace millrace::cli
