// One worker's part of copies at other servers: the worker tells other servers what its connections
// do, takes over what they tell (src/replicate), and sends packets to the servers that serve their
// connections.
//
// A message is for a shard, and each shard belongs to a worker. A datagram carries messages of
// several shards. The worker that receives it gives its own shards their messages, and passes it
// on to the workers that have the others: each of them opens the datagram for itself. Messages that
// find no worker, or come too late, come again.
//
// A packet takes one hop at most: the server to which it hops serves it, or drops it.
//
// Used by its worker's thread alone.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/outgoing.h"
#include "line/line.h"
#include "worker/copies.h"

namespace millrace {

class WorkersCopies final : public Line::Between, private ShardCopy::Outbox {
 public:
  /// Operations of the worker's port.
  class Way {
   public:
    virtual ~Way() = default;
    /// Sends a datagram to another server. False: it is dropped.
    virtual bool send_to(const AnyKey& ends, std::span<const std::byte> datagram) = 0;
    /// Sends a frame that `hold` has taken, before newer ones.
    virtual void release(const Outgoing& frame) = 0;
    /// Takes a frame in that another server got on that link, from that customer (0: none). False:
    /// there is no such link here, or no memory.
    virtual bool take_hop(std::span<const std::byte> frame, unsigned link, Zone customer) = 0;
  };
  /// Bytes of a datagram, except that a packet may need a larger one.
  static constexpr std::size_t kMostDatagram = 1400;
  /// Bytes by which a datagram is longer than the frame of a packet that hops in it.
  static constexpr std::size_t kHopBytes = kSealBytes + sizeof(MessageHead);
  static constexpr unsigned kMostWorkers = 128;
  using OtherWorkers = std::bitset<kMostWorkers>;

  /// `copies`, `line` and `way` must outlive the object.
  WorkersCopies(Copies& copies, unsigned worker, Line& line, Way& way);

  /// True if the key's packet is a datagram of another server: an address of one, and the port.
  bool is_from_other(const KeyV4& key) const { return comes_from_other(key); }
  bool is_from_other(const KeyV6& key) const { return comes_from_other(key); }
  /// Takes such a datagram, between two bursts. Returns the workers to pass it to; `is_passed`:
  /// another worker has passed it here.
  OtherWorkers take(std::span<const std::byte> datagram, bool is_passed, Tick now);

  /// True if packets go to the servers of their shards.
  bool hops() const { return placement_->hops; }
  /// Sends packets in lanes, whose shards must be numbered, to the servers that serve them, except
  /// those in `stay`. Gives them their verdicts, and returns them, bits by place in the burst.
  std::uint64_t hop(Burst& burst, std::uint64_t stay);

  /// Keeps a frame of `Burst::deferred` until the other copy of the shard has its connection, or
  /// for `Copies::Settings::defer_ms`. False: there is no room.
  bool hold(unsigned shard, const Outgoing& frame, Tick now);
  /// Counts a packet of `Burst::deferred` that waits for its next hop alone.
  void skip_hold() { counters_->sent_early.add(1); }
  /// Sends all that is held.
  void release_all();

  void between_bursts(Burst& next, Burst& after) override;

 private:
  struct Batch {
    Member to = Member::none;
    std::vector<std::byte> messages;
    unsigned hops = 0;  // packets among them
  };

  /// A shard that has no copy here, but may still have connections.
  struct Ending {
    std::uint16_t shard;
    unsigned rounds = 0;  // in which it had none
  };
  struct Held {
    Outgoing frame;
    Tick since;
    std::optional<std::uint64_t> until;  // the other copy has its connection: acknowledged so far
  };
  struct OfGrants {
    std::uint64_t seen = 0;    // `changes_of_use` of the copy
    Grants::Bits are_new = 0;  // nobody had them before
  };

  template <class K>
  bool comes_from_other(const K& key) const;
  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override;
  void put(std::size_t peer, Member to, const MessageHead& head,
           std::span<const std::byte> payload);
  void flush(std::size_t peer);
  std::optional<std::size_t> peer_of(Member process) const;
  void adopt(Tick now);
  void greet(Tick now);
  void say_hello(std::size_t peer, Member to, const Copies::Greeting& greeting);
  std::optional<Opener::Opened> open(std::span<const std::byte> datagram, const SealedFor& ends);
  bool may_try(const SealedFor& ends);
  void hear(const SealedFor& ends, std::uint64_t number, const Message& message);
  void take_packet(const Message& message, const Peer::State& from);
  void note_heard();
  bool hears(Member process) const;
  void find_ways();
  void note_agreement();
  void note_layouts();
  void note_in_sync(unsigned shard);
  void follow_grants(unsigned shard);
  void note_grants(unsigned shard, Tick now);
  std::uint32_t latest_grant(unsigned shard, Tick now) const;
  bool is_sure(unsigned shard) const;
  bool waits_for_other(unsigned shard) const;
  void note_deferring(unsigned shard);
  void release(unsigned shard, Tick now);
  void give_up();
  void look_through(Tick now);
  void tell_all(Tick now);
  void send_of(unsigned shard, Tick now);
  void count();

  Copies* copies_;
  unsigned worker_;
  Line* line_;
  Way* way_;
  CopiesCounters* counters_;
  std::vector<std::unique_ptr<ShardCopy>> shards_;  // by shard; null: another worker's
  std::vector<std::uint16_t> own_;                  // this worker's shards
  std::vector<std::uint16_t> due_;  // shards with something to answer; may name one twice
  std::vector<Ending> ending_;
  std::optional<Sealer> sealer_;
  Opener opener_;
  Opener open_to_all_;  // for hellos to any process
  std::shared_ptr<const Placement> placement_;
  std::uint64_t seen_ = 0;                      // `changes` of the placement
  std::uint64_t heard_ = 0;                     // peers that are heard, a bit each
  std::uint64_t disagreeing_ = 0;               // peers whose records cannot be read, a bit each
  std::vector<const CarriedLayouts*> layouts_;  // by peer: `Peer::State::layouts`
  std::vector<std::vector<Held>> held_;         // by shard, in order
  std::vector<std::uint16_t> holding_;          // shards with frames in `held_`
  std::size_t held_frames_ = 0;
  std::vector<OfGrants> of_grants_;  // by shard
  std::vector<std::uint8_t> ways_;   // by shard: the peer that serves it, or this process
  CopiesState state_{.has_settled = false, .both_are_new = false, .is_sure = false};
  std::vector<Batch> batches_;  // by peer: messages that wait for a datagram
  std::vector<std::byte> sealed_;
  std::size_t telling_ = 0;    // place in `own_` of the shard all of which is told next
  std::size_t looked_at_ = 0;  // place in `own_` from which the next shards are looked at
  bool is_sure_ = true;        // of the shards below `looked_at_`: all are settled and in sync
  bool has_changed_ = false;   // whether one is in sync has changed
  unsigned busy_bursts_ = 0;
  Tick last_{};
  Tick hello_at_{};
  std::uint64_t tried_ms_ = 0;       // when the second began in which `tries_` are counted
  std::array<unsigned, 2> tries_{};  // datagrams of unknown senders: to this process, to any
  CopiesCounters told_{};            // what `count` has counted of the copies and the opener
};

}  // namespace millrace
