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
#include "millrace/types.h"
#include "port/devices.h"
#include "port/port.h"
#include "port/ring.h"
#include "shard/indirection.h"
#include "shard/spread.h"
#include "worker/tracer.h"

namespace millrace {

/// What the ports of all workers share. Outlives them.
class LiveHub {
 public:
  /// Packets that may wait, from one worker to another.
  static constexpr unsigned kRing = 1023;

  /// `spread`: none where whoever receives a packet serves it. Errors (failed): no memory.
  static Result<std::unique_ptr<LiveHub>> create(Devices& devices, unsigned workers,
                                                 std::unique_ptr<Spread> spread, unsigned entries);

  Devices& devices() const { return *devices_; }
  unsigned workers() const { return workers_; }
  const Spread* spread() const { return spread_.get(); }
  const Indirection& indirection() const { return indirection_; }
  PointerRing& ring(unsigned from, unsigned to) { return rings_[from * workers_ + to]; }

 private:
  LiveHub(Devices& devices, unsigned workers, std::unique_ptr<Spread> spread,
          Indirection indirection)
      : devices_(&devices),
        workers_(workers),
        spread_(std::move(spread)),
        indirection_(std::move(indirection)) {}

  Devices* devices_;
  unsigned workers_;
  std::unique_ptr<Spread> spread_;
  Indirection indirection_;
  std::vector<PointerRing> rings_;  // from each worker to each
};

/// Of one port; beside what its host counts.
struct alignas(64) LivePortCounters {
  Counter not_sent;     ///< a device had no room for them
  Counter handed_over;  ///< given to the workers that own them
  Counter not_handed;   ///< these had no room
};

class LivePort final : public Port, private Wire {
 public:
  struct Options {
    bool sleeps = false;                      ///< where nothing comes
    const std::atomic<bool>* stop = nullptr;  ///< ends `receive`
  };
  LivePort(LiveHub& hub, unsigned worker, const HostConfig& host, const Options& options);
  ~LivePort() override;
  LivePort(const LivePort&) = delete;
  LivePort& operator=(const LivePort&) = delete;

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override;
  void filed(Burst& burst) override;
  std::uint64_t route(Burst& burst, std::uint64_t forward) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  /// Between two bursts.
  void update(const HostConfig& host) { host_.update(host, now_, *this); }

  /// Who wants to see packets, or nobody; between two bursts.
  void trace(Tracer* tracer) { tracer_ = tracer; }

  const LivePortCounters& counters() const { return counters_; }
  const Host& host() const { return host_; }

 private:
  // The wire.
  Outgoing make(unsigned bytes) override { return hub_->devices().make(bytes); }
  void send(const Outgoing& frame) override;
  void drop(Handle handle) override { Devices::free({&handle, 1}); }
  unsigned link_of(Handle handle) const override { return hub_->devices().device_of(handle); }

  void join();
  void take_in(Burst& burst);
  void take_in(Burst& burst, Handle tag);
  void wait();
  template <class K>
  void find_owners(const Lanes<K>& lanes);
  template <class K>
  void find_owners(const Lane<K>& lane, Side side);
  void hand_over(Burst& burst);
  void tell_others(const Burst& burst);
  void give(unsigned worker, Handle handle, bool is_news);
  void flush();

  LiveHub* hub_;
  unsigned worker_;
  Options options_;
  Host host_;
  std::vector<unsigned> queues_;
  bool completes_checksums_ = false;
  bool joined_ = false;
  std::chrono::steady_clock::time_point start_;
  Tick now_;
  unsigned empty_ = 0;  // bursts in a row
  unsigned first_ = 0;  // whose ring is looked into first
  std::array<std::uint8_t, Burst::kMax> owner_;
  std::array<Outgoing, Burst::kMax> out_;
  std::uint64_t taken_ = 0;
  std::vector<Outgoing> own_;  // that the host sends
  Tracer* tracer_ = nullptr;
  LivePortCounters counters_;
};

}  // namespace millrace
