// A shard on its way from one worker to another, while packets flow.
//
// A shard is an entry of the indirection table, with all connections behind it. Workers pass each
// other packets through rings, one for each ordered pair, and in these also what is told here:
//
//   1. The worker that has the shard, the *giver*, packs its connections into parcels, a few
//   between
//      two bursts, and sends these to the *taker*. From then on it passes the taker every packet of
//      the shard whose connection it does not have: one that has gone, or one that begins. The
//      parcel that is being filled goes before such a packet. The others it serves.
//   2. When none is left, the shard changes hands: the giver passes on all its packets, and the
//      table says that the taker has it.
//   3. Every other worker, the taker included, that sees this writes a marker into its ring to the
//      giver, behind the packets that it has sent there, and sends the shard's packets to the taker
//      from then on. The giver passes the marker on to the taker.
//   4. The taker holds the packets that a worker sends it, or that come by its own queues, until
//      the marker of that worker has come by way of the giver: then nothing older can come.
//
// So a connection is at any time in the tables of one worker, or in a parcel; its packets are
// served in the order in which each worker received them; the work that a burst does for a move is
// bounded; and no worker waits for another worker. Packets are lost only where a ring has no room
// for them, or where more than `kMostHeld` would have to be held.
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
  std::vector<std::byte> connections;  ///< in a parcel (line/carried.h)
  std::atomic<bool> is_free = true;    ///< for a parcel: it may be filled
};

/// The worker of each shard, and the move under way. All workers share it.
class ShardMoves {
 public:
  /// Size in bytes from which a parcel is sent.
  static constexpr std::size_t kFull = 1024;
  /// Bytes for which a parcel has memory beforehand: also for the connections that fill it.
  static constexpr std::size_t kParcelBytes = 8192;

  ShardMoves(const Indirection& first, unsigned workers);

  unsigned shards() const { return static_cast<unsigned>(worker_of_.size()); }
  unsigned workers() const { return static_cast<unsigned>(markers_.size()); }
  /// Returns the worker that has the shard; while the shard changes hands, the taker. Any thread.
  unsigned worker_of(unsigned shard) const {
    return worker_of_[shard].load(std::memory_order_acquire);
  }

  /// @name By one thread at a time, which decides
  /// @{
  /// Begins to move a shard to a worker that does not have it; no move is under way.
  void begin(unsigned shard, unsigned to);
  bool is_under_way() const { return stage_.load(std::memory_order_acquire) != Stage::none; }
  /// Calls `unpack(shard, from, to, parcel)` for each parcel of connections that has not been
  /// opened by the taker. To be called when the workers have ended, and the move with them.
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
  // The move. Its members are written before `number_`, and stay until all workers have done their
  // part in it.
  std::atomic<std::uint32_t> number_ = 0;  // of moves begun
  std::atomic<Stage> stage_ = Stage::none;
  unsigned shard_ = 0;
  unsigned from_ = 0;
  unsigned to_ = 0;
  std::array<MoveMessage, kParcels> parcels_;
  std::vector<MoveMessage> markers_;  // by worker
};

/// A worker as its part in moves sees it: its rings, its tables, and packets on their way through
/// it. The worker's thread calls.
class MovingWorker {
 public:
  virtual ~MovingWorker() = default;
  /// Sends the message to another worker, behind all that it was sent before. False: its ring has
  /// no room; then it was not sent.
  virtual bool send(unsigned to, MoveMessage& message) = 0;
  /// Removes a few connections of the shard from its tables, none in some calls, and appends them
  /// to `parcel`. True: none is left.
  virtual bool pack(unsigned shard, std::vector<std::byte>& parcel) = 0;
  /// Opens connections that worker `from` has packed. Called at least once in each move; the last
  /// parcel may be empty.
  virtual void unpack(unsigned shard, unsigned from, std::span<const std::byte> parcel) = 0;
  /// Returns the packets of the shard in the burst that is looked up next whose connection it does
  /// not have: a bit each, by their places there.
  virtual std::uint64_t without_connection(unsigned shard) const = 0;
  /// Sends another worker these packets of the burst that is looked up next, in their order.
  virtual void pass_on(std::uint64_t packets, unsigned to) = 0;
  /// Drops these.
  virtual void drop(std::uint64_t packets) = 0;
  /// Sends another worker all packets of the shard that have not been looked up, in their order.
  virtual void pass_on_all(unsigned shard, unsigned to) = 0;
};

/// One worker's part in moves; used by its thread alone.
class ShardsOfWorker {
 public:
  /// Packets that a worker holds, at most.
  static constexpr std::uint32_t kMostHeld = 8192;

  /// `moves` and `worker` outlive this object.
  ShardsOfWorker(ShardMoves& moves, MovingWorker& worker, unsigned number);

  /// To be called once a burst, when messages and packets have been taken from rings, before the
  /// first `way_of`.
  void begin_burst() {
    if (seen_ != moves_->number_.load(std::memory_order_acquire)) [[unlikely]]
      join();
    if (role_ != Role::none && !has_turned_) [[unlikely]]
      turn();
  }

  /// Returns which worker is to get a packet of that shard. `from`: the worker whose ring it came
  /// by, or this one where a device gave it. `holds`: this worker, later.
  struct Way {
    unsigned worker = 0;
    bool holds = false;
  };
  Way way_of(unsigned shard, unsigned from) const {
    if (role_ == Role::none || shard != moves_->shard_) [[likely]]
      return {worker_of_[shard], false};
    return way_of_moving(from);
  }

  /// Notes a message that has come. It takes effect at the end of the burst that is being received.
  void receive(MoveMessage& message) { received_.push_back(&message); }
  /// Holds a packet if `way_of` said that it must be held. False: `kMostHeld` are held already.
  bool hold(Handle packet, unsigned from);
  /// True if a packet need not be held any more.
  bool has_released() const { return released_ > 0; }
  /// Returns that packet, those of one worker in their order. It is to be served before others that
  /// have come.
  Handle release();
  /// Calls `each(packet)` for all that it holds, and holds them no more.
  template <class Each>
  void release_all(Each&& each) {
    for (Queue& queue : queues_) {
      for (; queue.first != kNone; queue.first = held_[queue.first].next)
        each(held_[queue.first].packet);
    }
  }

  /// To be called between two bursts.
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
  std::vector<std::uint16_t> worker_of_;  // as this worker sends packets
  std::uint32_t seen_ = 0;                // the latest move that it knows
  Role role_ = Role::none;                // in that one
  MoveMessage* filling_ = nullptr;        // the giver's parcel that has not been sent
  bool has_given_ = false;                // the giver has sent one
  bool has_turned_ = false;               // it sends the shard's packets to the taker
  std::vector<MoveMessage*> received_;    // since the last step
  std::vector<MoveMessage*> to_pass_;     // markers, of the giver
  unsigned markers_ = 0;                  // passed on by the giver, or come to the taker
  std::vector<bool> is_marked_;           // by worker, of the taker
  std::vector<Held> held_;
  std::uint32_t first_free_ = 0;  // of `held_`
  std::vector<Queue> queues_;     // of `held_`, by the worker they came from
  std::uint32_t held_count_ = 0;
  std::uint32_t released_ = 0;  // of those held, whose workers are marked
};

}  // namespace millrace
