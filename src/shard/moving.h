// A shard on its way from one worker to another, while packets flow.
//
// A shard is an entry of the indirection table, with all connections behind it. Workers pass each
// other packets through rings, one for each ordered pair. The same rings carry the messages of a
// move:
//
//   1. The worker that has the shard, the *giver*, packs the shard's connections into parcels, a
//      few between two bursts, and sends the parcels to the *taker*. Meanwhile the giver serves the
//      shard's packets whose connection it still has. It passes the other packets on to the taker:
//      their connections have been packed, or begin with them. The parcel that is being filled is
//      sent before such a packet.
//   2. When no connection is left, the shard changes hands: the giver passes on all packets of the
//      shard that it has not looked up, and writes the taker into the table.
//   3. Each other worker, the taker included, that sees this change writes a marker into its ring
//      to the giver, behind the packets that it has sent there. From then on it sends the shard's
//      packets to the taker. The giver passes the marker on to the taker.
//   4. The taker holds the shard's packets from a worker other than the giver, or from its own
//      queues, until the giver has passed on the marker of that worker (or the taker's own): then
//      no older packet can arrive.
//
// So a connection is at any time in the tables of one worker, or in a parcel; its packets are
// served in the order in which each worker received them; the work that a burst does for a move is
// bounded; and no worker waits for another worker. Packets are lost only where a ring has no room
// for them or for the parcel that must precede them, or where more than `kMostHeld` would have to
// be held.
//
// There is no clock, no thread and no allocation here; one move is under way at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/burst.h"
#include "shard/indirection.h"

namespace millrace {

/// A message about a move, from one worker to another.
struct MoveMessage {
  enum class Kind : std::uint8_t { parcel, marker };
  Kind kind = Kind::parcel;
  std::uint16_t worker = 0;            ///< the worker that wrote the marker
  std::vector<std::byte> connections;  ///< connections of a parcel (line/carried.h)
  std::atomic<bool> is_free = true;    ///< true: the parcel may be filled
};

/// The worker of each shard, and the move under way. All workers share it.
class ShardMoves {
 public:
  /// Size in bytes from which a parcel is full, and is sent.
  static constexpr std::size_t kFull = 256;
  /// Bytes of memory that a parcel has from the start: `kFull`, and room for the connections that
  /// exceed it.
  static constexpr std::size_t kParcelBytes = 8192;

  ShardMoves(const Indirection& first, unsigned workers);

  unsigned shards() const { return static_cast<unsigned>(worker_of_.size()); }
  unsigned workers() const { return static_cast<unsigned>(markers_.size()); }
  /// Returns the worker that has the shard; while the shard changes hands, the taker. Any thread.
  unsigned worker_of(unsigned shard) const {
    return worker_of_[shard].load(std::memory_order_acquire);
  }

  /// Returns how many moves have begun. Any thread.
  std::uint32_t count() const { return number_.load(std::memory_order_relaxed); }

  /// @name For the thread that decides about moves, one at a time
  /// @{
  /// Begins to move a shard to a worker that does not have it. No move may be under way.
  void begin(unsigned shard, unsigned to);
  bool is_under_way() const { return stage_.load(std::memory_order_acquire) != Stage::none; }
  /// Calls `unpack(shard, from, to, parcel)` for each parcel whose connections the taker has not
  /// opened. To be called when the workers have ended, and the move with them.
  template <class Unpack>
  void end(Unpack&& unpack) {
    for (MoveMessage& parcel : parcels_) {
      if (parcel.connections.empty()) continue;
      unpack(shard_, from_, to_, std::span<const std::byte>(parcel.connections));
      parcel.connections.clear();
    }
  }
  /// @}

 private:
  friend class ShardsOfWorker;
  static constexpr unsigned kParcels = 4;
  enum class Stage : std::uint8_t { none, giving, given };

  std::vector<std::atomic<std::uint16_t>> worker_of_;
  // The move. `shard_`, `from_` and `to_` are written before `number_`, and stay as they are until
  // all workers have done their part in the move.
  std::atomic<std::uint32_t> number_ = 0;  // number of moves begun
  std::atomic<Stage> stage_ = Stage::none;
  unsigned shard_ = 0;
  unsigned from_ = 0;
  unsigned to_ = 0;
  std::array<MoveMessage, kParcels> parcels_;
  std::vector<MoveMessage> markers_;  // by worker
};

/// A worker, as `ShardsOfWorker` sees it: the worker's rings and tables, and the packets in its
/// bursts. Called by the worker's thread.
class MovingWorker {
 public:
  virtual ~MovingWorker() = default;
  /// Sends the message to another worker, behind everything sent to that worker before. False: the
  /// ring has no room, and the message was not sent.
  virtual bool send(unsigned to, MoveMessage& message) = 0;
  /// Removes a few connections of the shard from the worker's tables, none in some calls, and
  /// appends to `parcel` those that have not expired. True: no connection is left.
  virtual bool pack(unsigned shard, std::vector<std::byte>& parcel) = 0;
  /// Opens connections that worker `from` has packed. Called at least once in each move; the last
  /// parcel may be empty.
  virtual void unpack(unsigned shard, unsigned from, std::span<const std::byte> parcel) = 0;
  /// Returns packets of the burst that is looked up next: those of the shard that have no
  /// connection in this worker's tables, a bit each, by place in the burst.
  virtual std::uint64_t without_connection(unsigned shard) const = 0;
  /// Sends another worker these packets of the burst that is looked up next, in their order.
  virtual void pass_on(std::uint64_t packets, unsigned to) = 0;
  /// Drops these packets of the burst that is looked up next.
  virtual void drop(std::uint64_t packets) = 0;
  /// Sends another worker all packets of the shard that have not been looked up, in their order.
  virtual void pass_on_all(unsigned shard, unsigned to) = 0;
};

/// One worker's part in moves; used by its thread alone.
class ShardsOfWorker {
 public:
  /// Packets that a worker holds, at most.
  static constexpr std::uint32_t kMostHeld = 8192;

  /// `moves` and `worker` must outlive this object.
  ShardsOfWorker(ShardMoves& moves, MovingWorker& worker, unsigned number);

  /// Joins a move that has begun, and does this worker's part when the shard changes hands. To be
  /// called once a burst, after messages and packets have been taken from rings and before the
  /// first `way_of`.
  void begin_burst() {
    if (seen_ != moves_->number_.load(std::memory_order_acquire)) [[unlikely]]
      join();
    if (role_ != Role::none && !has_turned_) [[unlikely]]
      turn();
  }

  /// The next step of a packet: the worker that gets it, and whether this worker must hold it
  /// first.
  struct Way {
    unsigned worker = 0;  ///< the worker that gets the packet next
    bool holds = false;   ///< true: `worker` is this worker, which must hold the packet first
  };
  /// Returns which worker gets a packet of that shard next, and whether to hold the packet first.
  /// `from`: the worker whose ring the packet came by, or this worker if the packet came by its own
  /// queues.
  Way way_of(unsigned shard, unsigned from) const {
    if (role_ == Role::none || shard != moves_->shard_) [[likely]]
      return {worker_of_[shard], false};
    return way_of_moving(from);
  }

  /// Notes a message that has arrived. The message takes effect at the next `between_bursts`.
  void receive(MoveMessage& message) { received_.push_back(&message); }
  /// Holds a packet for which `way_of` returned `holds`. `from`: as for `way_of`. False: the packet
  /// is not held, since `kMostHeld` packets are held already.
  bool hold(Handle packet, unsigned from);
  /// True if some held packet need not be held any more.
  bool has_released() const { return released_ > 0; }
  /// Returns a packet that need not be held any more, and no longer holds it; packets from one
  /// worker keep their order. The packet must be served before packets that are received later.
  Handle release();
  /// Calls `each(packet)` for all held packets. To be called last.
  template <class Each>
  void release_all(Each&& each) {
    for (Queue& queue : queues_) {
      for (; queue.first != kNone; queue.first = held_[queue.first].next)
        each(held_[queue.first].packet);
    }
  }

  /// Does this worker's part of a move. To be called between two bursts.
  void between_bursts() {
    if (role_ != Role::none || !received_.empty()) [[unlikely]]
      step();
  }
  /// True if this worker still has connections to pack, and should not sleep.
  bool is_packing() const { return role_ == Role::gives && !has_turned_; }
  /// True if no move concerns this worker.
  bool is_at_rest() const { return role_ == Role::none && received_.empty(); }

 private:
  enum class Role : std::uint8_t { none, gives, takes, turns };
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Held {
    Handle packet = 0;
    std::uint32_t next = kNone;
  };
  struct Queue {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
    std::uint32_t count = 0;
  };

  void join();
  void turn();
  void step();
  void apply(MoveMessage& message);
  void mark(unsigned worker);
  void pass_markers();
  void give();
  bool pack();
  bool send_parcel();
  Way way_of_moving(unsigned from) const;

  ShardMoves* moves_;
  MovingWorker* worker_;
  unsigned number_;
  std::vector<std::uint16_t> worker_of_;  // by shard: the worker to which this one sends packets
  std::uint32_t seen_ = 0;                // number of the latest move that this worker knows
  Role role_ = Role::none;                // part of this worker in the move `seen_`
  MoveMessage* filling_ = nullptr;        // the giver's parcel that has not been sent
  bool has_given_ = false;                // the giver has sent a parcel
  bool has_turned_ = false;               // this worker sends the shard's packets to the taker
  std::vector<MoveMessage*> received_;    // messages since the last `step`
  std::vector<MoveMessage*> to_pass_;     // in the giver: markers that it has yet to pass on
  unsigned markers_ = 0;         // markers that the giver has passed on, or the taker has received
  std::vector<bool> is_marked_;  // in the taker, by worker: its marker has arrived
  std::vector<Held> held_;
  std::uint32_t first_free_ = 0;  // index in `held_`
  std::vector<Queue> queues_;     // lists in `held_`, by the worker that sent the packets
  std::uint32_t held_count_ = 0;
  std::uint32_t released_ = 0;  // number of held packets from workers whose marker has arrived
};

}  // namespace millrace
