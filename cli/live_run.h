// A running dataplane (`millrace run`): the steps in which it starts, anew or in place of a running
// one, until it ends. One thread calls its functions; `report` may be called by another thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "config/config.h"
#include "control/control.h"
#include "control/control_server.h"
#include "live/live.h"
#include "port/interface_claim.h"
#include "port/telemetry.h"
#include "reload_signal.h"
#include "report.h"
#include "settings_file.h"
#include "take_over.h"
#include "worker/copies.h"
#include "worker/workers.h"

namespace millrace::cli {

class LiveRun {
 public:
  /// Value of `Options::control` for a run without a control socket.
  static constexpr std::string_view kNoControl = "none";

  struct Options {
    std::string control;  ///< path of the control socket; empty: `default_socket`; or `kNoControl`
    std::vector<std::string> eal_options;
    bool takes_over = false;
    bool quiet = false;
  };

  /// Makes a run that has not started. Errors: the configuration cannot run live.
  static Result<std::unique_ptr<LiveRun>> create(Config config, std::string path, Options options);

  /// Prepares everything that forwarding needs; takes over from a running millrace if
  /// `Options::takes_over` and there is one. Errors: what is missing, or in the way. A running
  /// millrace then goes on, unless it has ended already.
  Result<void> start();
  /// Forwards until this process is `interrupted`, or another process takes over. Errors: failed,
  /// if a thread cannot be started, or memory runs out.
  Result<void> forward();

  /// Returns the results so far. While `forward` runs, only one thread at a time may call `report`
  /// (`Control::alone`).
  RunReport report() const;
  const Workers& workers() const { return *workers_; }

 private:
  LiveRun(Config config, std::string path, Options options, const Secret& spread);

  std::string socket() const {
    return options_.control.empty() ? default_socket() : options_.control;
  }
  void note(std::string_view message) const;
  static void warn(const Error& error);
  void describe() const;
  void reload();
  void look_for_alarms();

  // The steps of `start`.
  Result<void> look_for_another();
  Result<void> start_anew();
  Result<void> take_over_beside();
  Result<void> take_over_after();
  Result<void> bind_socket();
  Result<void> claim_interfaces(std::chrono::milliseconds patience);
  Result<void> claim_what_is_new();
  Result<void> claim_in_time();
  void note_new_taps();
  Result<void> prepare_devices();
  std::chrono::milliseconds patience() const;
  Result<void> open_devices();
  void keep_settings();
  void inherit_from_killed();
  Result<void> make_workers();
  Result<void> make_control();
  Result<void> answer();
  Result<void> take_place();

  Config config_;
  std::string path_;
  Options options_;
  LineConfig line_;
  Secret spread_;  // by which connections are spread over shards
  std::shared_ptr<Owners> owners_;
  ServersKey servers_key_{};              // with other servers
  std::optional<Copies> copies_;          // must outlive `live_`; none: there is no other server
  InterfaceClaims claims_;                // must outlive the devices of `live_`
  std::optional<SettingsFile> settings_;  // must outlive `live_`; none: there is no control socket
  std::unique_ptr<Live> live_;
  std::optional<Workers> workers_;
  std::optional<Control> control_;
  std::unique_ptr<ControlServer> server_;
  std::optional<Telemetry> telemetry_;
  std::optional<ReloadSignal> reload_signal_;
  std::optional<std::jthread> claiming_;
  std::atomic<bool> has_ended_ = false;  // true: the workers have ended
  std::vector<std::string> alarms_;      // that have been told of
  std::vector<std::string> new_taps_;    // names of taps that ended with the old process
  std::unique_ptr<TakeOver> take_over_;  // null: this process starts anew
};

}  // namespace millrace::cli
