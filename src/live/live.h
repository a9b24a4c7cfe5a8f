// What `millrace run` is made of, beside its workers: devices, and a port for each worker.
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
  std::shared_ptr<Owners> owners;  ///< as `make_owners` makes them
  std::vector<std::string> eal_options;
  const std::atomic<bool>* stop = nullptr;  ///< ends the run; outlives it
};

/// Of the workers of such a configuration.
std::shared_ptr<Owners> make_owners(const Config& config, const Secret& secret);

/// Opened, asked and closed by one thread; while it runs, other threads may read counters.
class Live {
 public:
  /// As `Devices::prepare`.
  static Result<void> prepare(const Config& config, const std::vector<std::string>& eal_options);
  /// Errors: the configuration lacks something (usage), or as `Devices::open`.
  static Result<std::unique_ptr<Live>> open(const Config& config, const LiveOptions& options);

  /// Packets come from now on.
  Result<void> start();
  /// One for each worker, which runs on it.
  std::vector<Port*> ports() const;

  /// What hosts become by such a configuration.
  std::shared_ptr<const HostPlan> host_plan(const Config& config) const;
  /// That worker's host becomes so, and what it was is in `plan`; between two of its bursts.
  void update(unsigned worker, std::shared_ptr<const HostPlan>& plan) {
    ports_[worker]->update(plan);
  }

  /// Who wants to see that worker's packets, or null; between two of its bursts.
  void trace(unsigned worker, Tracer* tracer) { ports_[worker]->trace(tracer); }

  /// All hosts know of a neighbour; before workers run.
  void know(const KnownNeighbour& neighbour) {
    for (const auto& port : ports_) port->know(neighbour);
  }

  Owners& owners() const { return hub_->exchange().owners(); }
  /// Shards may move between these workers; before they run.
  void set_workers(Workers& workers);
  /// From now on only the first so many workers receive; the others sleep while no other worker
  /// sends them anything. One thread at a time.
  void use(unsigned workers) { hub_->use(workers); }
  /// How many are meant to receive; and whether only these do.
  unsigned in_use() const { return hub_->in_use(); }
  bool has_settled() const { return hub_->has_settled(); }
  /// That worker's port; between two of its bursts.
  LivePort& port(unsigned worker) { return *ports_[worker]; }

  /// Null where no port has an interface of the kernel's.
  const KernelSide* kernel() const { return kernel_.get(); }
  /// Gives its interfaces the addresses of a configuration that has the same ports. Errors: as
  /// `KernelTap::set_addresses`.
  Result<void> update_kernel(const Config& config);
  /// Another process goes on with these interfaces. Workers run still.
  void leave_kernel() {
    if (kernel_) kernel_->leave();
  }

  /// A worker has ended, so all do.
  bool is_ending() const { return hub_->is_ending(); }

  const Devices& devices() const { return *devices_; }
  Devices& devices() { return *devices_; }
  /// Workers sleep where nothing comes.
  bool sleeps() const { return sleeps_; }

  /// Returns for how many nanoseconds in all that worker has had no packet; any thread.
  std::uint64_t idle_ns(unsigned worker) const {
    return ports_[worker]->counters().idle_ns.value();
  }

  /// Packets beside those that lines count, so far.
  struct Totals {
    std::uint64_t generated = 0;
    std::uint64_t released = 0;     ///< held, and sent after all
    std::uint64_t unresolved = 0;   ///< held, and dropped
    std::uint64_t not_sent = 0;     ///< that devices had no room for
    std::uint64_t handed_over = 0;  ///< from a worker to another
    std::uint64_t not_handed = 0;   ///< for want of room
  };
  Totals totals() const;

 private:
  Live() = default;

  std::unique_ptr<Devices> devices_;
  std::unique_ptr<KernelSide> kernel_;
  std::unique_ptr<LiveHub> hub_;
  std::vector<std::unique_ptr<LivePort>> ports_;
  bool sleeps_ = false;
};

/// Returns the kernel's interfaces that its ports are, and those that they have beside.
std::set<std::string> interfaces_of(const Config& config);

/// Whether the configuration is one to run live. The error (usage) says what is missing, or does
/// not go: a line each.
Result<void> check_live(const Config& config);

}  // namespace millrace
