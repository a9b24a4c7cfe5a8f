#include "live_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "command_line/command.h"
#include "command_line/huge_pages.h"
#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "common_options.h"
#include "core/json.h"
#include "core/processors.h"

namespace millrace::cli {
namespace {

// Longest time to claim the interfaces that the old process had: on a busy machine the kernel takes
// seconds to close the packet sockets of a process that has ended.
constexpr std::chrono::seconds kPatience{60};

/// Adds the unsigned integers of an object and of the objects in it to `table`. The name of a
/// number is its path: "above/name".
void flatten(const Json& object, const std::string& above, TelemetryTable& table) {
  for (const auto& [name, value] : object.items()) {
    std::string full = above;
    if (!full.empty()) full += '/';
    full += name;
    if (value.is_number_unsigned()) table.emplace_back(full, value.get<std::uint64_t>());
    if (value.is_object()) flatten(value, full, table);
  }
}

/// Serves parts of the statistics to DPDK's telemetry tools.
Result<Telemetry> serve_telemetry(Control& asked, const std::function<Json()>& make_stats) {
  const auto part = [&asked, make_stats](const std::string& name) {
    return [&asked, make_stats, name] {
      TelemetryTable table;
      if (!asked.wait_until_ready()) return table;
      asked.alone([&] { flatten(make_stats()[name], "", table); });
      return table;
    };
  };
  // Returns a function that returns the numbers of each element of the list `of.key`. The name of
  // an element is made of its members in `of.called`.
  const auto elements = [&asked, make_stats](const FunctionTelemetry& of) {
    return [&asked, make_stats, &of] {
      TelemetryTable table;
      if (!asked.wait_until_ready()) return table;
      asked.alone([&] {
        const Json stats = make_stats();
        for (const auto& element : stats[std::string(of.key)]) {
          std::string called;
          for (const std::string_view member : of.called)
            called.append(called.empty() ? "" : "/")
                .append(element[std::string(member)].get<std::string>());
          flatten(element, called, table);
        }
      });
      return table;
    };
  };
  std::vector<Telemetry::Command> commands{
      {"/millrace/packets", "Packets, by what became of them", part("packets")},
      {"/millrace/connections", "Connections that were opened, live and ended",
       part("connections")}};
  for (const FunctionTelemetry& of : asked.kind().telemetry)
    commands.push_back({"/millrace/" + std::string(of.key), std::string(of.what), elements(of)});
  return Telemetry::serve(std::move(commands));
}

/// Returns a port for people: "outside (af_packet:eth0, VLAN 100, 02:00:00:00:00:01, MTU 1500)".
std::string port_text(const Config::Port& port, const Devices& devices, unsigned number) {
  const Mac mac = devices.mac(number);
  const std::string vlan = port.vlan == 0 ? "" : fmt::format("VLAN {}, ", port.vlan);
  return fmt::format("{} ({}, {}{:02x}, MTU {})", port.name, to_string(port.device), vlan,
                     fmt::join(mac.bytes, ":"), devices.mtu(number));
}

/// True if two processes can have all devices open at once. If so, packets wait during a take-over
/// in the queues of the new process, and are lost only if a queue is full.
bool can_share_devices(const Config& config) {
  return std::ranges::all_of(config.live.ports, [](const Config::Port& port) {
    return port.device.kind == DeviceKind::af_packet || port.device.kind == DeviceKind::null;
  });
}

/// Does the steps one after the other, until one fails. Errors: the failed step's.
Result<void> in_turn(std::initializer_list<std::function<Result<void>()>> steps) {
  for (const auto& step : steps) {
    if (auto ok = step(); !ok) return ok;
  }
  return {};
}

}  // namespace

LiveRun::LiveRun(Config config, std::string path, Options options, const Secret& spread)
    : config_(std::move(config)),
      path_(std::move(path)),
      options_(std::move(options)),
      line_(line_config(config_)),
      spread_(spread),
      owners_(make_owners(config_, spread)) {
  line_.secret = Secret::random();
  line_.copies = config_.servers.has_value();
  // With copies, the host's own connections are in a shard behind all others, which has none.
  if (line_.copies || (config_.spread.level && config_.workers > 1))
    line_.shards_that_move = config_.spread.entries + (line_.copies ? 1 : 0);
}

Result<std::unique_ptr<LiveRun>> LiveRun::create(Config config, std::string path, Options options) {
  const auto of_file = [&path](Error error) {
    error.message = in_file(path, error.message);
    return std::unexpected(std::move(error));
  };
  if (auto ok = check_live(config); !ok) return of_file(ok.error());
  if (auto ok = check_spread(config); !ok) return of_file(ok.error());
  ServersKey key{};
  Result<Secret> spread = Secret::random();
  if (config.servers) {
    const auto read = read_servers_key(*config.servers);
    if (!read) return of_file(read.error());
    key = *read;
    spread = Copies::spread_secret(key);
    if (!spread) return std::unexpected(spread.error());
  }
  std::unique_ptr<LiveRun> run(
      new LiveRun(std::move(config), std::move(path), std::move(options), *spread));
  run->servers_key_ = key;
  if (auto ok = check_schemes(run->line_); !ok) return std::unexpected(ok.error());
  return run;
}

void LiveRun::note(std::string_view message) const {
  if (!options_.quiet) say(fmt::format("millrace: {}\n", message));
}

Result<void> LiveRun::start() {
  const auto as_is_fit = [this] {
    if (take_over_ == nullptr) return start_anew();
    return can_share_devices(config_) ? take_over_beside() : take_over_after();
  };
  if (auto ok = in_turn(
          {[this] { return look_for_another(); }, as_is_fit, [this] { return take_place(); }});
      !ok)
    return ok;
  if (take_over_ != nullptr) keep_settings();
  describe();
  take_over_.reset();
  return {};
}

Result<void> LiveRun::look_for_another() {
  if (!options_.takes_over) return {};
  if (auto ok = bind_socket(); !ok) return ok;  // keeps out a second process that would take over
  auto begun = TakeOver::begin(socket());
  if (!begun) return std::unexpected(begun.error());
  take_over_ = std::move(*begun);
  if (take_over_ == nullptr)
    note("no process listens at " + socket() + ": there is nothing to take over");
  return {};
}

/// Starts without another process, which may just have been killed. Claims interfaces and binds the
/// socket before it opens devices: if another millrace has one of these, no device has changed.
Result<void> LiveRun::start_anew() {
  return in_turn({[this] { return claim_interfaces(patience()); },
                  [this] { return Live::prepare(config_, options_.eal_options); },
                  [this] { return bind_socket(); }, [this] { return open_devices(); },
                  [this] {
                    inherit_from_killed();
                    keep_settings();
                    return make_workers();
                  },
                  [this] { return make_control(); }, [this] { return answer(); },
                  [this] { return live_->start(); }});
}

/// Takes over while the old process still has its devices open: packets that come after that
/// process has stopped receiving wait in this process's queues.
Result<void> LiveRun::take_over_beside() {
  return in_turn({[this] { return claim_what_is_new(); }, [this] { return open_devices(); },
                  [this] { return make_workers(); },
                  [this] { return take_over_->start(*workers_, owners_); },
                  [this] { return live_->start(); },
                  [this] {
                    live_->devices().discard();
                    return take_over_->stop_the_other();
                  },
                  [this] { return make_control(); }, [this] { return answer(); },
                  // If a step before this one fails, the old process goes on.
                  [this] { return take_over_->let_the_other_end(); },
                  [this] {
                    if (copies_) copies_->set_active(take_over_->offer().is_active);
                    take_over_->inherit_settings(*live_);
                    return claim_in_time();
                  }});
}

/// Takes over devices that only one process can have open: packets are lost from the end of the old
/// process until this process has opened them.
Result<void> LiveRun::take_over_after() {
  return in_turn({[this] { return claim_what_is_new(); }, [this] { return prepare_devices(); },
                  [this] { return make_workers(); },
                  [this] { return take_over_->start(*workers_, owners_); },
                  [this] { return take_over_->stop_the_other(); },
                  // If a step before this one fails, the old process goes on.
                  [this] { return take_over_->let_the_other_end(); },
                  [this] { return take_over_->wait_for_its_end(); },
                  [this] { return claim_interfaces(patience()); },
                  [this] {
                    note_new_taps();
                    return open_devices();
                  },
                  [this] {
                    take_over_->inherit_settings(*live_);
                    return make_control();
                  },
                  [this] {
                    if (auto ok = answer(); !ok) warn(ok.error());
                    return live_->start();
                  }});
}

Result<void> LiveRun::claim_interfaces(std::chrono::milliseconds patience) {
  const auto names = interfaces_of(config_);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    auto ok = claims_.take(names, std::min(patience, std::chrono::milliseconds(100)));
    if (ok || interrupted || std::chrono::steady_clock::now() >= until) return ok;
  }
}

/// Claims the interfaces that the old process does not have. If a third process has one of them,
/// the take-over fails here, before the old process ends.
Result<void> LiveRun::claim_what_is_new() {
  std::set<std::string> names = interfaces_of(config_);
  for (const auto& [name, settings] : take_over_->offer().to_restore) names.erase(name);
  return claims_.take(names, {});
}

/// Notes the taps that ended with the old process: DPDK makes new interfaces of these names.
void LiveRun::note_new_taps() {
  for (const Config::Port& port : config_.live.ports) {
    const std::string& name = port.device.target;
    if (port.device.kind == DeviceKind::tap && take_over_->offer().to_restore.contains(name) &&
        !KernelInterface::mac_of(name))
      new_taps_.push_back(name);
  }
}

/// Returns how long to wait for interfaces that are still claimed: not at all without an old
/// process that may be ending.
std::chrono::milliseconds LiveRun::patience() const {
  const bool may_end = take_over_ == nullptr ? options_.takes_over : !take_over_->is_gone({});
  return may_end ? kPatience : std::chrono::seconds{};
}

/// Starts DPDK before the old process ends, unless it would open PCI devices, which that one has.
Result<void> LiveRun::prepare_devices() {
  const auto is_pci = [](const Config::Port& port) { return port.device.kind == DeviceKind::pci; };
  if (std::ranges::any_of(config_.live.ports, is_pci)) return {};
  return Live::prepare(config_, options_.eal_options);
}

Result<void> LiveRun::bind_socket() {
  if (options_.control == kNoControl || server_ != nullptr) return {};
  auto server = ControlServer::bind(socket(), options_.takes_over);
  if (!server) return std::unexpected(server.error());
  server_ = std::move(*server);
  return {};
}

Result<void> LiveRun::open_devices() {
  if (config_.servers) {
    Copies::Settings settings = copies_settings(config_, servers_key_, spread_);
    if (take_over_ != nullptr) {
      settings.is_active = take_over_->offer().is_active;
      settings.has_settled = take_over_->offer().has_settled;
      settings.is_sure = take_over_->offer().is_sure;
    }
    copies_.emplace(settings, config_.workers, owners_);
  }
  auto opened = Live::open(config_, {.owners = owners_,
                                     .eal_options = options_.eal_options,
                                     .stop = &interrupted,
                                     .copies = copies_ ? &*copies_ : nullptr});
  if (!opened) return std::unexpected(opened.error());
  live_ = std::move(*opened);
  if (take_over_ != nullptr) take_over_->inherit_neighbours(*live_, *config_.live.customers);
  return {};
}

/// Reads the settings of interfaces that a killed process with the same control socket has left in
/// its file. This process restores them at its end, except those of interfaces that another running
/// millrace uses.
void LiveRun::inherit_from_killed() {
  if (options_.control == kNoControl) return;
  settings_.emplace(socket() + ".interfaces");
  InterfaceSettings left = settings_->read();
  InterfaceClaims others;
  const auto ours = interfaces_of(config_);
  std::erase_if(left, [&](const auto& one) {
    return !ours.contains(one.first) && !others.take({one.first}, {});
  });
  live_->devices().restore(std::move(left));
}

/// Writes the settings of interfaces to the file: if this process is killed, the next millrace with
/// the same control socket restores them.
void LiveRun::keep_settings() {
  if (options_.control == kNoControl) return;
  if (!settings_) settings_.emplace(socket() + ".interfaces");
  if (auto ok = settings_->write(live_->devices().to_restore()); !ok) warn(ok.error());
}

Result<void> LiveRun::make_workers() {
  FunctionRun run = function_run(config_);
  run.is_live = true;
  if (copies_ && copies_->is_cluster()) run.share.grants = copies_->grants();
  run.helpers = std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U);
  if (take_over_ != nullptr) run.offered = &take_over_->offer().function;
  auto workers =
      Workers::create(config_.workers, line_, config_.function, run, config_.spread.entries);
  if (!workers) return std::unexpected(workers.error());
  workers_.emplace(std::move(*workers));
  if (copies_) {
    copies_->set_layout(workers_->line(0).carried_parts());
    copies_->set_settings(agreement(config_), config_.function->facts().needs_grants);
  }
  return {};
}

Result<void> LiveRun::make_control() {
  if (line_.shards_that_move > 0) live_->set_workers(*workers_);
  control_.emplace(*workers_, *live_, config_, path_, scheme_names(),
                   [] { interrupted.store(true); });
  if (take_over_ == nullptr) return {};
  return control_->resume();
}

/// Begins to serve telemetry, SIGHUP and the control socket, and to level shards.
Result<void> LiveRun::answer() {
  auto telemetry = serve_telemetry(*control_, [this] { return to_json(report()); });
  if (!telemetry) return std::unexpected(telemetry.error());
  telemetry_.emplace(std::move(*telemetry));
  reload_signal_.emplace([this] { reload(); }, [this] { look_for_alarms(); });
  if (line_.shards_that_move > 0 && !line_.copies) control_->level();
  if (server_ == nullptr) return {};
  return server_->start(*control_, [this] { return to_json(report()); });
}

/// Puts this process's socket at the path that clients know. After a take-over a failure causes
/// only a warning: forwarding matters more than the control socket.
Result<void> LiveRun::take_place() {
  if (server_ == nullptr) return {};
  auto ok = server_->take_place();
  if (ok || take_over_ == nullptr) return ok;
  warn(ok.error());
  return {};
}

void LiveRun::warn(const Error& error) { say("millrace: warning: " + error.message + "\n"); }

/// Starts a thread that claims the interfaces as soon as the old process has closed them.
Result<void> LiveRun::claim_in_time() try {
  claiming_.emplace([this] {
    if (const auto ok = claim_interfaces(kPatience); !ok && !interrupted) warn(ok.error());
  });
  return {};
} catch (const std::system_error& error) {
  warn({std::string("cannot start the thread that claims the interfaces, so another millrace could "
                    "take these interfaces, too: ") +
        error.what()});
  return {};
}

void LiveRun::describe() const {
  if (live_->devices().pages() == Pages::small)
    note("warning: packets lie on small pages, which is slower: " +
         huge_pages_hint(std::size_t{256} << 20, Pages::huge));
  for (const std::string& warning : live_->devices().warnings()) note("warning: " + warning);
  for (const std::string& warning : doubts(config_)) note("warning: " + warning);
  if (config_.workers > processors())
    note(
        fmt::format("warning: {} workers take turns on {} processors: with workers = {} each "
                    "worker has a processor of its own",
                    config_.workers, processors(), processors()));
  if (live_->kernel() != nullptr) {
    for (const std::string& warning : live_->kernel()->doubts()) note("warning: " + warning);
  }
  for (const std::string& name : new_taps_) {
    note(fmt::format(
        "warning: {0} is a new interface here, without addresses and routes: the old interface of "
        "that name ended with its process, or is in another network namespace. To make one that "
        "stays: ip tuntap add {0} mode tap multi_queue",
        name));
  }
  for (unsigned n = 0; n < config_.live.ports.size(); ++n)
    note("port " + port_text(config_.live.ports[n], live_->devices(), n));
  if (take_over_ != nullptr && take_over_->was_cut_off())
    warn(
        {"the running millrace ended while this one took over from it: this one goes on with the "
         "connections that have come so far, the others begin anew"});
  if (take_over_ != nullptr) {
    note(fmt::format("took over {} connections; {} were left behind", take_over_->connections(),
                     take_over_->left_behind()));
  }
  const std::string workers =
      config_.uses_few_workers && config_.workers > 1
          ? fmt::format("1 to {} workers, as the load needs", config_.workers)
          : fmt::format("{} worker{}", config_.workers, config_.workers == 1 ? "" : "s");
  note("running with " + workers + "; Ctrl-C ends it");
}

Result<void> LiveRun::forward() {
  const std::vector<Port*> ports = live_->ports();
  const auto ended = workers_->run(ports);
  if (line_.shards_that_move > 0) live_->end_move(*workers_);
  has_ended_ = true;
  interrupted = true;  // ends the waits of other threads
  claiming_.reset();
  reload_signal_.reset();
  // The server leaves its socket file in place: since no process listens there any more, the
  // process that takes over sees that this one has ended.
  if (server_ != nullptr && control_->is_handing_over()) server_->leave();
  server_.reset();  // no process can take over from now on
  control_->end_levelling();
  if (control_->is_replaced()) {
    note("another process has taken over");
    live_->devices().restore_none();
    settings_->leave();
  }
  return ended;
}

void LiveRun::reload() {
  control_->wait_until_ready();
  const auto is = control_->reload();
  if (!is) {
    const bool is_wrong = is.error().kind == Refusal::Kind::configuration;
    static_cast<void>(
        fail({fmt::format("{}nothing has changed:\n{}",
                          is_wrong ? "the configuration is wrong, " : "", is.error().message)}));
  } else {
    note(fmt::format("reloaded {}{}{}", path_, is->counts.empty() ? "" : ": ",
                     counts_text(is->counts)));
    for (const std::string& warning : is->warnings) note("warning: " + warning);
  }
}

/// Says which alarms have begun and which are over.
void LiveRun::look_for_alarms() {
  if (!control_->wait_until_ready()) return;
  std::vector<std::string> all = control_->alarms();
  const auto say_new = [](const auto& those, const auto& others, std::string_view what) {
    for (const std::string& alarm : those) {
      if (std::ranges::find(others, alarm) == others.end())
        say(fmt::format("millrace: {}: {}\n", what, alarm));
    }
  };
  say_new(all, alarms_, "warning");
  say_new(alarms_, all, "no longer");
  alarms_ = std::move(all);
}

RunReport LiveRun::report() const {
  RunReport report{.input = path_,
                   .workers = &*workers_,
                   .live = live_.get(),
                   .config = line_,
                   .spread = config_.spread};
  for (const Config::Port& port : config_.live.ports) report.ports.push_back(port.name);
  // Every host receives the neighbours' answers to all of them.
  const auto look = [&] {
    report.silent = live_->port(0).host().silent();
    report.rivals = live_->port(0).host().rivals();
  };
  if (has_ended_) {
    look();
  } else {
    workers_->ask(0, look);
  }
  for (unsigned n = 0; n < workers_->count(); ++n) {
    Workers::Time time = workers_->time(n);
    time.waited_ns = std::min(time.elapsed_ns, time.waited_ns + live_->idle_ns(n));
    report.times.push_back(time);
  }
  return report;
}

}  // namespace millrace::cli
