// The parts of `millrace run` besides its workers: devices, and a port for each worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "live/live_port.h"
#include "port/devices.h"
#include "worker/workers.h"

namespace millrace {

struct LiveOptions {
  std::shared_ptr<Owners> owners;  ///< from `make_owners`
  std::vector<std::string> eal_options;
  const std::atomic<bool>* stop = nullptr;  ///< ends the run when set; must outlive the `Live`
  Copies* copies = nullptr;  ///< null: there is no other server; must outlive the `Live`
};

/// Returns the owners of shards for a configuration's workers; without a spread if the workers
/// share their tables.
std::shared_ptr<Owners> make_owners(const Config& config, const Secret& secret);
/// Returns the settings of a configuration with other servers. `spread`: the secret of
/// `make_owners`.
Copies::Settings copies_settings(const Config& config, const ServersKey& key, const Secret& spread);

/// One thread at a time uses a `Live`; meanwhile any thread may read counters.
class Live {
 public:
  /// Does what `Devices::prepare` does, for a configuration. Errors: the same.
  static Result<void> prepare(const Config& config, const std::vector<std::string>& eal_options);
  /// Opens devices and makes a port for each worker. Errors: those of `check_live` and
  /// `Devices::open`, and of opening the kernel's interfaces.
  static Result<std::unique_ptr<Live>> open(const Config& config, const LiveOptions& options);

  /// Starts the devices: packets arrive from now on. Errors: as `Devices::start` and
  /// `KernelSide::start`.
  Result<void> start();
  /// Returns the ports, one for each worker to run on.
  std::vector<Port*> ports() const;

  /// Returns the hosts' plan for a configuration.
  std::shared_ptr<const HostPlan> host_plan(const Config& config) const;
  /// Gives that worker's host a new plan, and swaps the old one into `plan`. To be called between
  /// two of the worker's bursts.
  void update(unsigned worker, std::shared_ptr<const HostPlan>& plan) {
    ports_[worker]->update(plan);
  }

  /// Sets that worker's tracer; null ends tracing. To be called between two of the worker's bursts.
  void trace(unsigned worker, Tracer* tracer) { ports_[worker]->trace(tracer); }

  /// Adds a neighbour to all hosts. To be called before workers run.
  void know(const KnownNeighbour& neighbour) {
    for (const auto& port : ports_) port->know(neighbour);
  }

  /// Returns what workers have in common about the other server of a pair; null: there is none.
  Copies* copies() const { return copies_; }
  Owners& owners() const { return hub_->exchange().owners(); }
  /// Allows shards to move between these workers, or to be copied. To be called before they run.
  void set_workers(Workers& workers);
  /// Ends the move of a shard that was under way: gives the shard's connections to its new worker's
  /// line. To be called when the workers have ended.
  void end_move(Workers& workers);
  /// Makes only the first `workers` workers receive; the others sleep while no worker hands them
  /// packets. To be called by one thread at a time.
  void use(unsigned workers) { hub_->use(workers); }
  /// Returns the number of workers that are meant to receive.
  unsigned in_use() const { return hub_->in_use(); }
  /// True if each queue is polled by the worker that it is meant for.
  bool queues_are_in_place() const { return hub_->queues_are_in_place(); }
  /// Returns that worker's port. To be used between two of the worker's bursts.
  LivePort& port(unsigned worker) { return *ports_[worker]; }

  /// Returns the kernel's side; null if no port has a kernel interface.
  const KernelSide* kernel() const { return kernel_.get(); }
  /// Gives the kernel interfaces the addresses of a configuration with the same ports. Errors: as
  /// `KernelTap::set_addresses`.
  Result<void> update_kernel(const Config& config);
  /// Leaves the kernel interfaces to another process. Workers may still run.
  void leave_kernel() {
    if (kernel_) kernel_->leave();
  }

  /// True once one worker has ended; all other workers then end, too.
  bool is_ending() const { return hub_->is_ending(); }

  const Devices& devices() const { return *devices_; }
  Devices& devices() { return *devices_; }
  /// True if idle workers sleep.
  bool sleeps() const { return sleeps_; }

  /// Returns for how many nanoseconds in all the worker has had no packets. Any thread.
  std::uint64_t idle_ns(unsigned worker) const {
    return ports_[worker]->counters().idle_ns.value();
  }

  /// Counts of packets that no line counts.
  struct Totals {
    std::uint64_t generated = 0;    ///< frames that hosts made, or sent for the kernel
    std::uint64_t released = 0;     ///< packets held for a neighbour's MAC, and sent later
    std::uint64_t unresolved = 0;   ///< packets held for a neighbour's MAC, and dropped
    std::uint64_t not_sent = 0;     ///< packets for which a device had no room
    std::uint64_t handed_over = 0;  ///< packets handed over to another worker
    std::uint64_t not_handed = 0;  ///< packets dropped, as a ring had no room or too many were held
  };
  Totals totals() const;

 private:
  Live() = default;

  std::unique_ptr<Devices> devices_;
  std::unique_ptr<KernelSide> kernel_;
  std::unique_ptr<LiveHub> hub_;
  std::vector<std::unique_ptr<LivePort>> ports_;
  Copies* copies_ = nullptr;
  bool sleeps_ = false;
};

/// Returns the names of the kernel's interfaces that are devices of a configuration's ports, and of
/// those that millrace makes beside the ports (`kernel`).
std::set<std::string> interfaces_of(const Config& config);

/// Checks whether the configuration can run live. Errors: usage (what is missing or impossible, a
/// line each).
Result<void> check_live(const Config& config);

}  // namespace millrace
