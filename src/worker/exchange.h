// The exchange between workers: packets of connections that another worker has, packets that every
// worker's host must see, and shards that move (shard/moving.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/burst.h"
#include "core/counter.h"
#include "line/line.h"
#include "millrace/types.h"
#include "port/ring.h"
#include "shard/moving.h"
#include "shard/owners.h"

namespace millrace {

/// The rings between all workers. They must outlive each worker's part (`WorkersExchange`).
class Exchange {
 public:
  /// Packets and messages that may wait in the ring from one worker to another: about as many as
  /// the receive queue of one of the kernel's network devices holds at most. So while a worker gets
  /// no processor, the rings to it are not full before such a queue is.
  static constexpr unsigned kRing = 4095;

  /// Makes an exchange for `workers` workers. Errors (failed): no memory.
  static Result<std::unique_ptr<Exchange>> create(unsigned workers, std::shared_ptr<Owners> owners);

  unsigned workers() const { return workers_; }
  Owners& owners() const { return *owners_; }
  PointerRing& ring(unsigned from, unsigned to) { return rings_[from * workers_ + to]; }

 private:
  Exchange(unsigned workers, std::shared_ptr<Owners> owners)
      : workers_(workers), owners_(std::move(owners)) {}

  unsigned workers_;
  std::shared_ptr<Owners> owners_;
  std::vector<PointerRing> rings_;  // from each worker to each
};

/// One worker's part of the exchange. Called by the worker's thread.
class WorkersExchange final : public Line::Between, private MovingWorker {
 public:
  /// Operations of the worker's port.
  class Packets {
   public:
    virtual ~Packets() = default;
    /// Writes a packet into the burst at `at`: those columns that a port writes for each packet.
    virtual void place(Burst& burst, unsigned at, Handle packet) = 0;
    virtual void drop(Handle packet) = 0;
    /// Notes that a packet which this worker was to serve goes to another worker, or is dropped.
    virtual void passed_on(Handle packet) = 0;
    /// Shows the worker's host a packet that the hosts of all workers must see.
    virtual void hear(Handle packet) = 0;
    /// Shows the worker's copies a packet of the other server (copies.h).
    virtual void copy(Handle /*packet*/) {}
  };
  struct alignas(64) Counters {
    Counter handed_over;  ///< packets sent to the workers that have their shards
    Counter not_handed;   ///< packets dropped: a ring had no room, or too many were held
  };

  WorkersExchange(Exchange& exchange, unsigned worker, Packets& packets);
  ~WorkersExchange() override;
  WorkersExchange(const WorkersExchange&) = delete;
  WorkersExchange& operator=(const WorkersExchange&) = delete;

  /// Sets the lines of all workers, by worker, so that shards may move. To be called before the
  /// workers run.
  void set_lines(std::vector<Line*> lines);

  /// Adds packets from other workers to an empty burst: half a burst at most, so that packets of
  /// the worker's own queues find room. Packets that need not be held any more are added first, a
  /// whole burst at most.
  void receive(Burst& burst);
  /// Returns how many packets `receive` has added to the burst that has not been handed over.
  unsigned taken() const { return taken_; }
  /// Passes packets on to the workers that have their connections, holds those that must wait for a
  /// shard that moves here, and takes all these out of the burst. The keys of the burst must be in
  /// lanes, and their shards numbered. Packets behind those that `receive` added came by the
  /// worker's own queues.
  void hand_over(Burst& burst);
  /// Sends that worker a packet that its host must see, with one reference to the packet's memory;
  /// drops the reference if the ring is full.
  void tell(unsigned worker, Handle packet) { push(worker, packet, kNews); }
  /// Sends that worker a packet of the other server, in the same way.
  void pass_copies(unsigned worker, Handle packet) { push(worker, packet, kCopies); }
  /// Writes `Burst::shard` for packets in lanes. Without effect if any worker serves any packet.
  void number_shards(Burst& burst, const Steering& steering) const {
    if (owners_->spread() != nullptr) owners_->number_shards(burst, steering);
  }

  void between_bursts(Burst& next, Burst& after) override;

  /// True if packets go to the workers that have their connections.
  bool hands_over() const { return workers() > 1 && owners_->spread() != nullptr; }
  unsigned workers() const { return exchange_->workers(); }
  /// True if the other workers have received everything that this worker sent them.
  bool has_sent_all() const;
  /// True if no packet or message waits in the rings to this worker, and the worker has no part in
  /// a move.
  bool is_at_rest() const;
  bool is_moving() const { return !shards_.is_at_rest(); }
  bool is_packing() const { return shards_.is_packing(); }

  const Counters& counters() const { return counters_; }
  /// Returns how many packets of a shard this worker has served so far. Any thread.
  std::uint64_t packets_of(unsigned shard) const { return packets_of_[shard].value(); }

 private:
  /// The kinds of things that a ring carries, in the lowest bits of a pointer.
  enum Tag : std::uintptr_t { kPacket = 0, kNews = 1, kMessage = 2, kCopies = 3, kTags = 3 };
  /// Connections of each family that are packed between two bursts while no packets wait. While
  /// packets wait, one connection of each family is packed every `kBusyBursts` bursts: packets of
  /// other shards then take some 3 % more time.
  static constexpr std::size_t kPackedWhileIdle = 8;
  static constexpr unsigned kBusyBursts = 8;

  // Moves of shards (`MovingWorker`):
  bool send(unsigned to, MoveMessage& message) override;
  bool pack(unsigned shard, std::vector<std::byte>& parcel) override;
  void unpack(unsigned shard, unsigned from, std::span<const std::byte> parcel) override;
  std::uint64_t without_connection(unsigned shard) const override;
  void pass_on(std::uint64_t packets, unsigned to) override;
  void drop(std::uint64_t packets) override;
  void pass_on_all(unsigned shard, unsigned to) override;

  void receive(Burst& burst, std::uintptr_t item, unsigned from);
  template <class K>
  void find_ways(const Burst& burst, const Lane<K>& lane);
  void push(unsigned worker, Handle packet, Tag tag);
  template <class With>
  void withdraw(Burst& burst, std::uint64_t packets, With&& with);
  void pass_on(Burst& burst, std::uint64_t packets, unsigned to);

  Exchange* exchange_;
  unsigned worker_;
  Packets* port_;
  Owners* owners_;
  ShardsOfWorker shards_;
  std::vector<Line*> lines_;
  std::vector<Counter> packets_of_;  // by shard
  unsigned first_ = 0;               // the worker whose ring is read first
  unsigned busy_bursts_ = 0;         // bursts with packets since a connection was last packed
  // About the burst that is being received:
  unsigned released_ = 0;                       // the first `released_` packets were held
  unsigned taken_ = 0;                          // the first `taken_` were held or came by rings
  std::array<std::uint8_t, Burst::kMax> from_;  // by packet: the worker whose ring it came by
  std::array<ShardsOfWorker::Way, Burst::kMax> way_;
  // Set by `between_bursts`:
  Burst* next_ = nullptr;
  Burst* after_ = nullptr;
  Counters counters_;
};

}  // namespace millrace
