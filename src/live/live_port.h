// A worker's port in a live run: it receives by the worker's queues of all devices, hands packets
// of other workers' connections over to those workers, and sends where its host says.
//
// All packets of a connection belong to one worker (see src/shard). A packet that another worker
// receives goes to its owner through a ring; an ARP reply or neighbour advertisement that one
// worker receives is passed to all. If workers share their tables, each serves the packets that it
// receives.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host/host.h"
#include "live/tracer.h"
#include "millrace/types.h"
#include "port/devices.h"
#include "port/kernel_side.h"
#include "port/port.h"
#include "worker/exchange.h"
#include "worker/workers_copies.h"

namespace millrace {

/// State that the ports of all workers share. The hub must outlive the ports.
class LiveHub {
 public:
  /// Makes a hub. `kernel` may be null. Errors: failed (no memory).
  static Result<std::unique_ptr<LiveHub>> create(Devices& devices, KernelSide* kernel,
                                                 unsigned workers, std::shared_ptr<Owners> owners);

  Devices& devices() const { return *devices_; }
  KernelSide* kernel() const { return kernel_; }
  Exchange& exchange() const { return *exchange_; }

  /// @name Which worker receives by which queue
  /// Queue n is meant for worker n % `in_use`. A queue passes to another worker once all packets
  /// that its receiver has handed over have reached the workers that serve them.
  /// @{
  unsigned in_use() const { return in_use_.load(std::memory_order_acquire); }
  /// Sets the number of workers that receive. One thread at a time.
  void use(unsigned workers) {
    in_use_.store(workers, std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }
  unsigned receiver_of(unsigned queue) const {
    return receiver_of_[queue].load(std::memory_order_acquire);
  }
  unsigned meant_for(unsigned queue) const { return queue % in_use(); }
  /// Passes a queue to another worker. To be called by the queue's receiver.
  void pass(unsigned queue, unsigned to) {
    receiver_of_[queue].store(static_cast<std::uint16_t>(to), std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }
  /// True if each queue is polled by the worker that it is meant for.
  bool queues_are_in_place() const {
    for (unsigned queue = 0; queue < receiver_of_.size(); ++queue) {
      if (receiver_of(queue) != meant_for(queue)) return false;
    }
    return true;
  }
  /// Returns a number that changes whenever the settings above change.
  std::uint32_t changes() const { return changes_.load(std::memory_order_acquire); }
  /// @}

  /// Makes all workers end. Called when one has ended or failed, since no other worker serves its
  /// packets. Any thread.
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
  std::vector<std::atomic<std::uint16_t>> receiver_of_;  // indexed by queue
  std::atomic<std::uint32_t> changes_ = 1;
  std::atomic<bool> is_ending_ = false;
};

/// Counters of one port, besides its host's.
struct alignas(64) LivePortCounters {
  Counter not_sent;  ///< packets for which a device had no room
  Counter idle_ns;   ///< nanoseconds without packets, polling or asleep
};

class LivePort final : public Port,
                       private Wire,
                       private WorkersExchange::Packets,
                       private WorkersCopies::Way {
 public:
  struct Options {
    bool sleeps = false;                      ///< true: sleeps when idle
    bool guards_host = false;                 ///< `Function::guards_host`
    const std::atomic<bool>* stop = nullptr;  ///< `receive` ends once it is true
    Copies* copies = nullptr;                 ///< null: there is no other server
  };
  LivePort(LiveHub& hub, unsigned worker, const HostConfig& host, const Options& options);
  ~LivePort() override = default;
  LivePort(const LivePort&) = delete;
  LivePort& operator=(const LivePort&) = delete;

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receives_parsed() const override { return true; }
  unsigned known() const override { return exchange_.taken(); }
  bool can_place() const override { return true; }
  bool receive(Burst& burst) override;
  /// Also for packets that `exchange_` receives.
  void place(Burst& burst, unsigned at, Handle packet) override {
    Devices::place(burst, at, packet);
    burst.link[at] = static_cast<std::uint8_t>(link_of(packet));
    // NOLINTNEXTLINE(clang-analyzer-core.BitwiseShift): `at` is below 64, as a burst has no more
    burst.of_host |= std::uint64_t{Devices::has_kernel_mark(packet)} << at;
    burst.customer[at] = Devices::customer_of(packet);
    burst.from_customer |= std::uint64_t{burst.customer[at] != 0} << at;
    burst.came_again |= std::uint64_t{Devices::comes_again(packet)} << at;
    burst.hopped |= std::uint64_t{Devices::has_hopped(packet)} << at;
  }
  void filed(Burst& burst, const Steering& steering) override;
  std::uint64_t looked_up(Burst& burst, const Steering& steering) override;
  void number_shards(Burst& burst, const Steering& steering) override;
  bool take_again(Burst& burst, std::uint64_t packets) override;
  std::uint64_t route(Burst& burst, std::uint64_t forward) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void tell(const Reset<KeyV4>& reset) override { host_.tell(reset, now_, *this); }
  void tell(const Reset<KeyV6>& reset) override { host_.tell(reset, now_, *this); }
  void finish() override;

  /// Gives the host a new plan, and swaps the old one into `plan`. To be called between two bursts.
  void update(std::shared_ptr<const HostPlan>& plan) { host_.update(plan, now_, *this); }

  /// Sets the lines of all workers, by worker. To be called before the workers run.
  void set_lines(const std::vector<Line*>& lines);

  /// Sets the tracer; null: none. To be called between two bursts.
  void trace(Tracer* tracer) { tracer_ = tracer; }

  /// @name Called between two bursts
  /// @{
  /// Pauses: the port receives on until a poll finds no packet, for at most `kBacklog` bursts, and
  /// then receives nothing from its queues until `go_on`.
  void pause() { backlog_ = kBacklog; }
  void go_on() { backlog_ = kGoesOn; }
  /// True if the port has paused and no packet is on its way to or through the worker.
  bool is_drained() const;
  /// @}
  /// Adds a neighbour to the host. To be called between two bursts, or before the first.
  void know(const KnownNeighbour& neighbour) { host_.know(neighbour, now_, *this); }

  const LivePortCounters& counters() const { return counters_; }
  const WorkersExchange& exchange() const { return exchange_; }
  WorkersExchange& exchange() { return exchange_; }
  const Host& host() const { return host_; }

 private:
  static constexpr unsigned kGoesOn = UINT32_MAX;
  static constexpr unsigned kBacklog = 256;
  /// Largest number of packets that wait to come in again. While they wait, the port receives fewer
  /// others, so that they become no more; but packets of shards that have moved come besides.
  static constexpr std::size_t kMostAgain = 4096;

  // --- Wire
  Outgoing make(unsigned bytes) override { return hub_->devices().make(bytes); }
  void send(const Outgoing& frame) override;
  void release(const Outgoing& frame) override;
  void take_in(const Outgoing& frame) override;
  void drop(Handle handle) override { Devices::free({&handle, 1}); }
  // --- WorkersExchange::Packets
  void passed_on(Handle packet) override {
    if (tracer_ != nullptr) tracer_->forget(packet);
  }
  void hear(Handle packet) override;
  void copy(Handle packet) override;
  // --- WorkersCopies::Way
  bool send_to(const AnyKey& ends, std::span<const std::byte> datagram) override {
    return host_.send(ends, datagram, now_, *this);
  }
  bool take_hop(std::span<const std::byte> frame, unsigned link, Zone customer) override;
  bool give_to_kernel(Handle handle, unsigned link) override;
  void show_to_kernel(Handle handle, unsigned link) override;
  unsigned link_of(Handle handle) const { return hub_->devices().link_of(handle); }

  void join();
  void choose_queues();
  void poll(Burst& burst);
  void add_arrivals(Burst& burst, unsigned begin, unsigned first_link);
  void send_for_kernel();
  void receive_from_kernel(Burst& burst);
  void receive_again(Burst& burst);
  void wait();
  void tell_others(const Burst& burst);
  void take_copies(Burst& burst);
  template <class K>
  std::uint64_t take_copies(Burst& burst, Lane<K>& lane);
  bool numbers_all() const { return exchange_.hands_over() || (copies_ && copies_->hops()); }
  void flush();
  void flush(std::vector<Outgoing>& frames);

  LiveHub* hub_;
  unsigned worker_;
  Options options_;
  Host host_;
  std::vector<unsigned> queues_;  // queues by which this worker receives
  std::uint32_t changes_ = 0;     // `changes()` of the hub when `queues_` was last updated
  std::array<Arrival, Burst::kMax> arrivals_;
  unsigned arrived_ = 0;
  bool completes_checksums_ = false;
  bool joined_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point looked_;  // time of the last poll for packets
  Tick now_;
  unsigned empty_ = 0;          // empty bursts in a row
  unsigned backlog_ = kGoesOn;  // polls until the port has paused; `kGoesOn`: it does not pause
  std::array<Outgoing, Burst::kMax> out_;
  std::uint64_t taken_ = 0;
  std::vector<Outgoing> released_;  // frames that waited, to be sent before the burst's
  std::vector<Outgoing> own_;       // frames that the host sends, behind the burst's
  std::vector<Handle> again_;       // packets that come in again, the oldest first
  Tracer* tracer_ = nullptr;
  LivePortCounters counters_;
  WorkersExchange exchange_;
  std::optional<WorkersCopies> copies_;  // none: there are no other servers
  bool is_active_ = false;               // as the host knows
};

}  // namespace millrace
