// A worker's port where millrace runs live: it receives by the worker's queues of all devices,
// hands to others what is theirs, and sends where its host says.
//
// Packets of a connection belong to one worker (`shard`). What another worker receives of them goes
// through a ring to their owner; what a neighbour tells one worker, all hear. Where workers share
// their tables, everybody serves what he receives.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host/host.h"
#include "live/tracer.h"
#include "millrace/types.h"
#include "port/devices.h"
#include "port/kernel_side.h"
#include "port/port.h"
#include "worker/exchange.h"

namespace millrace {

/// What the ports of all workers share. Outlives them.
class LiveHub {
 public:
  /// `kernel` may be null. Errors (failed): no memory.
  static Result<std::unique_ptr<LiveHub>> create(Devices& devices, KernelSide* kernel,
                                                 unsigned workers, std::shared_ptr<Owners> owners);

  Devices& devices() const { return *devices_; }
  KernelSide* kernel() const { return kernel_; }
  Exchange& exchange() const { return *exchange_; }

  /// @name Which worker receives by which queue
  /// Of the first `in_use` workers each has every `in_use`-th. A queue passes from one to another
  /// when all that the one has received by it has reached those that serve it.
  /// @{
  unsigned in_use() const { return in_use_.load(std::memory_order_acquire); }
  /// One thread at a time.
  void use(unsigned workers) {
    in_use_.store(workers, std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }
  unsigned receiver_of(unsigned queue) const {
    return receiver_of_[queue].load(std::memory_order_acquire);
  }
  unsigned meant_for(unsigned queue) const { return queue % in_use(); }
  /// By its receiver.
  void pass(unsigned queue, unsigned to) {
    receiver_of_[queue].store(static_cast<std::uint16_t>(to), std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }
  /// Each queue is with the worker that it is meant for.
  bool has_settled() const {
    for (unsigned queue = 0; queue < receiver_of_.size(); ++queue) {
      if (receiver_of(queue) != meant_for(queue)) return false;
    }
    return true;
  }
  /// Another number whenever something of this has changed.
  std::uint32_t changes() const { return changes_.load(std::memory_order_acquire); }
  /// @}

  /// A worker has ended, or has failed: nobody serves its packets, so all end. Any thread.
  void end() { is_ending_.store(true, std::memory_order_relaxed); }
  bool is_ending() const { return is_ending_.load(std::memory_order_relaxed); }

 private:
  LiveHub(Devices& devices, KernelSide* kernel, std::unique_ptr<Exchange> exchange)
      : devices_(&devices),
        kernel_(kernel),
        exchange_(std::move(exchange)),
        in_use_(exchange_->workers()),
        receiver_of_(devices.receive_queues()) {
    for (unsigned queue = 0; queue < receiver_of_.size(); ++queue)
      receiver_of_[queue] = static_cast<std::uint16_t>(meant_for(queue));
  }

  Devices* devices_;
  KernelSide* kernel_;
  std::unique_ptr<Exchange> exchange_;
  std::atomic<unsigned> in_use_;
  std::vector<std::atomic<std::uint16_t>> receiver_of_;  // by queue
  std::atomic<std::uint32_t> changes_ = 1;
  std::atomic<bool> is_ending_ = false;
};

/// Of one port; beside what its host counts.
struct alignas(64) LivePortCounters {
  Counter not_sent;  ///< a device had no room for them
  Counter idle_ns;   ///< without a packet: it looked for some, or slept
};

class LivePort final : public Port, private Wire, private WorkersExchange::Packets {
 public:
  struct Options {
    bool sleeps = false;                      ///< where nothing comes
    const std::atomic<bool>* stop = nullptr;  ///< ends `receive`
  };
  LivePort(LiveHub& hub, unsigned worker, const HostConfig& host, const Options& options);
  ~LivePort() override = default;
  LivePort(const LivePort&) = delete;
  LivePort& operator=(const LivePort&) = delete;

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receives_parsed() const override { return true; }
  bool receive(Burst& burst) override;
  void filed(Burst& burst, const Steering& steering) override;
  std::uint64_t looked_up(Burst& burst, const Steering& steering) override;
  std::uint64_t route(Burst& burst, std::uint64_t forward) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void tell(const Reset<KeyV4>& reset) override { host_.tell(reset, now_, *this); }
  void tell(const Reset<KeyV6>& reset) override { host_.tell(reset, now_, *this); }
  void finish() override;

  /// Between two bursts.
  void update(std::shared_ptr<const HostPlan>& plan) { host_.update(plan, now_, *this); }

  /// Who wants to see packets, or nobody; between two bursts.
  void trace(Tracer* tracer) { tracer_ = tracer; }

  /// @name Between two bursts
  /// @{
  /// What has come so far is received still, up to `kBacklog` bursts; what comes later is not,
  /// until it goes on.
  void pause() { backlog_ = kBacklog; }
  void go_on() { backlog_ = kGoesOn; }
  /// It has paused, and no packet is on its way through its worker or to it.
  bool is_drained() const;
  /// @}
  /// Between two bursts, or before the first.
  void know(const KnownNeighbour& neighbour) { host_.know(neighbour, now_, *this); }

  const LivePortCounters& counters() const { return counters_; }
  const WorkersExchange& exchange() const { return exchange_; }
  WorkersExchange& exchange() { return exchange_; }
  const Host& host() const { return host_; }

 private:
  static constexpr unsigned kGoesOn = UINT32_MAX;
  static constexpr unsigned kBacklog = 256;

  // The wire.
  Outgoing make(unsigned bytes) override { return hub_->devices().make(bytes); }
  void send(const Outgoing& frame) override;
  void drop(Handle handle) override { Devices::free({&handle, 1}); }
  // The exchange's packets.
  void place(Burst& burst, unsigned at, Handle packet) override {
    Devices::place(burst, at, packet);
  }
  void passed_on(Handle packet) override {
    if (tracer_ != nullptr) tracer_->forget(packet);
  }
  void hear(const Burst& burst, unsigned at, Handle packet) override;
  bool give_to_kernel(Handle handle, unsigned link) override;
  void show_to_kernel(Handle handle, unsigned link) override;
  unsigned link_of(Handle handle) const override { return hub_->devices().device_of(handle); }

  void join();
  void choose_queues();
  void poll(Burst& burst);
  void send_for_kernel();
  void wait();
  void tell_others(const Burst& burst);
  void flush();

  LiveHub* hub_;
  unsigned worker_;
  Options options_;
  Host host_;
  std::vector<unsigned> queues_;  // by which it receives
  std::uint32_t changes_ = 0;     // of the hub, that `queues_` is up to
  std::array<Arrival, Burst::kMax> arrivals_;
  unsigned arrived_ = 0;
  bool completes_checksums_ = false;
  bool joined_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point looked_;  // for packets, the last time
  Tick now_;
  unsigned empty_ = 0;          // bursts in a row
  unsigned backlog_ = kGoesOn;  // bursts until it has paused
  std::array<Outgoing, Burst::kMax> out_;
  std::uint64_t taken_ = 0;
  std::vector<Outgoing> own_;  // that the host sends
  Tracer* tracer_ = nullptr;
  LivePortCounters counters_;
  WorkersExchange exchange_;
};

}  // namespace millrace
