// The tracker: a table, a sharing scheme and an ageing scheme put together, for one address family.
//
// A connection has an entry with the key of its originator's packets and, if its replies are
// tracked, an entry with the key of the replies. Both stand in one table; the record says which of
// the two an entry is. A tracker that does not follow packets, like the library's, has a table for
// each side instead. The two entries name each other as `peer`, age together and are erased
// together. Each worker has a tracker, with an ageing scheme of its own for the connections that
// the worker opened, over tables that may be shared.
//
// The life of a connection: `open` inserts the originator's entry, `link` the reply's, if there is
// one; `confirm` makes the connection live and adds it to ageing; `sweep` or `close` ends it. A
// connection that was opened must be confirmed or abandoned in the same burst. Records of removed
// entries stay readable until the burst's `reclaim`; with shared tables, until every worker that
// uses the tables has called `reclaim` since.
//
// Thread rule: only one worker may use an instance. If tables are shared, the worker must hold a
// guard: `reading()` for lookups, `writing()` from an `open` to its `confirm` or `abandon`, and for
// `close` and `sweep`.
//
// A tracker that follows packets keeps a state for each connection; state and protocol decide the
// timeout; other trackers have one timeout for all. If connections may move to another worker's
// tracker, the tracker keeps a list of the connections of each shard.
//
// No other worker sees a connection before `confirm`. The guards ensure that. If several workers
// change tables at once, the record ensures it: `peer` is `kUnconfirmed` in every record without a
// confirmed connection, and `confirm` publishes all that was written before. A lookup does not find
// an unconfirmed entry. A worker that finds another worker opening the same connection first
// confirms its own openings and then tries again, so that workers never wait for each other in a
// circle.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "conntrack/ageing/ageing.h"
#include "conntrack/copied_shards.h"
#include "conntrack/entry.h"
#include "conntrack/life.h"
#include "conntrack/repeated_syns.h"
#include "conntrack/rings.h"
#include "conntrack/sharing/sharing.h"
#include "conntrack/state.h"
#include "conntrack/tracker_config.h"
#include "core/sharded_count.h"
#include "core/signal.h"
#include "millrace/table.h"

namespace millrace {

/// The tracker of one worker. Ids are those of originators' entries unless a function says
/// otherwise.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
class Tracker {
 public:
  using Table = TableOf<K>;
  using Guarding = GuardsType;

  /// Makes the trackers of `workers` workers, over the same tables. `workers` may exceed 1 only if
  /// the guards are made for sharing. Errors: what the table refuses (usage); no memory (failed).
  static Result<std::vector<Tracker>> create(const TrackerConfig& config, Guarding guards,
                                             unsigned workers);
  /// Makes the only tracker over its tables. Errors: those of the other `create`.
  static Result<Tracker> create(const TrackerConfig& config) {
    auto trackers = create(config, Guarding{}, 1);
    if (!trackers) return std::unexpected(trackers.error());
    return std::move(trackers->front());
  }

  const Hasher& hasher() const { return table().hasher(); }
  const Records<K>& originators() const { return table().records(); }
  const Records<K>& replies() const { return table_of(Side::reply).records(); }
  bool has_replies() const { return has_replies_; }
  /// Returns the function's states in that side's records.
  States<K> states(Side side = Side::originator) const {
    return States<K>(table_of(side).records(), own_bytes_);
  }

  const Table& table() const { return pair().originators; }
  const Table& table_of(Side side) const {
    return side == Side::reply && pair().replies ? *pair().replies : pair().originators;
  }
  /// Returns the side of an entry, for a tracker that follows packets; else `originator`.
  Side side_of(ConnId id) const {
    const bool is_reply = follows_ && load_standing(life(originators(), id)).is_of_reply();
    return is_reply ? Side::reply : Side::originator;
  }
  /// Returns the number of connections of all workers in the tables, those being opened included.
  std::size_t connections() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(shared_->connections.total(), 0));
  }
  /// Returns the number of live connections that this worker has confirmed.
  std::size_t live() const { return live_; }
  std::size_t memory_bytes() const {
    return table().memory_bytes() + (pair().replies ? pair().replies->memory_bytes() : 0) +
           ageing_->memory_bytes() + (shards_ ? shards_->memory_bytes() : 0) +
           (copied_ ? copied_->memory_bytes() : 0);
  }

  /// Calls `each(id)` for the originator's entry of every connection in the tables, of all workers.
  /// No worker may change the tables meanwhile.
  template <class Each>
  void for_each(Each&& each) const {
    const auto visit = [&](ConnId id) {
      if (side_of(id) == Side::originator) each(id);
    };
    for (auto at = Cursor::begin; at != Cursor::end;) at = table().walk(at, kDrainingRoom, visit);
  }
  /// True if `id`, below `ids()`, is that of a live connection that this worker has confirmed.
  bool is_live_and_mine(ConnId id) const {
    return is_confirmed(id) && side_of(id) == Side::originator &&
           (!Guarding::kShared || is_mine(id));
  }
  std::size_t ids() const { return originators().count(); }
  /// Returns the tick of the connection's latest packet, of either direction.
  Tick last_seen(ConnId id) const { return latest_seen(id); }
  /// Returns the tick at which the connection expires if no packet comes.
  Tick due(ConnId id) const { return deadline(id); }

  /// @name Guards
  /// @{
  auto reading() const { return shared_->guards.reading(); }
  auto writing() const { return shared_->guards.writing(); }
  /// Begins the worker's use of the tables: grace periods wait for the worker until it calls `end`.
  void begin() { reclaiming_.begin(); }
  void end() { reclaiming_.end(); }
  /// @}

  /// The pipeline of a table (table.h). `side` matters only if each side has a table of its own.
  void prefetch(std::span<const Hash> hashes, Side side = Side::originator) const {
    if (has(side)) table_of(side).prefetch(hashes);
  }
  Stragglers prefetch_records(std::span<const K> keys, std::span<const Hash> hashes,
                              Side side = Side::originator) const {
    if (!has(side)) return {};
    if (side == Side::originator) return prefetch_to_open(table(), keys, hashes);
    return table_of(side).prefetch_records(keys, hashes);
  }
  void prefetch_stragglers(std::span<const K> keys, std::span<const Hash> hashes,
                           Stragglers stragglers, Side side = Side::originator) const {
    if (has(side)) table_of(side).prefetch_stragglers(keys, hashes, stragglers);
  }

  /// Sets `ids[i]` to the entry of `keys[i]`, or none, and the entries' `last_seen` to `now`. If
  /// the tracker follows packets, bit i of the result is set if `ids[i]` is a reply's entry.
  std::uint64_t find(std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                     std::span<ConnId> ids, Stragglers stragglers = {},
                     Side side = Side::originator) {
    return look_up(side, keys, hashes, now, ids, stragglers,
                   [now](std::size_t, auto& header) { see(header, now); });
  }

  /// Does what `find` does, for packets that `follow` is to check.
  /// Sets `seen_before[i]` to the tick that the entry had; without an entry, to `now`.
  std::uint64_t find_to_check(std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                              std::span<ConnId> ids, std::span<Tick> seen_before,
                              Stragglers stragglers = {});

  /// Finds the entries of a burst as `find` does, but does not mark them as seen at `now`.
  std::uint64_t peek(std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                     std::span<ConnId> ids, Stragglers stragglers = {}) const {
    return look_up(Side::originator, keys, hashes, now, ids, stragglers, [](std::size_t, auto&) {});
  }

  /// Returns the connection of that key, of either side if the tracker follows packets, or none.
  ConnId peek_one(const K& key, Tick now) const;

  /// Sets the timeouts. A connection whose timeout gets shorter ends when ageing next reads its
  /// deadline: within `kLookAgainMs` if tables are shared, else by the old deadline.
  void set_timeouts(const Timeouts& timeouts) {
    timeouts_ = timeouts;
    least_timeout_ = timeouts.least();
  }

  /// Room for one more connection, or the limit that is reached: of half-open ones, or of all.
  enum class Room : std::uint8_t { there_is, over_budget, full };
  Room room() const;
  /// Ends a half-open connection so that another may begin: of this worker's next few by id, the
  /// one that has been idle longest. False: there is none without a packet at this tick.
  template <class Closed>
  bool end_half_open(Tick now, Closed&& closed);
  /// Returns how full the tables are, in percent of the capacity. If several workers change the
  /// tables at once, the result is an estimate from this worker's connections.
  unsigned fill_percent() const {
    const std::size_t held = Guarding::kConcurrent ? live_ * shared_->workers : connections();
    return static_cast<unsigned>(held * 100 / capacity_);
  }

  /// Kinds of new connections, by which connections they may evict from a table of one worker.
  enum class Newcomer : std::uint8_t {
    adopted,   ///< evicts nothing
    unproved,  ///< evicts expired connections
    proved,    ///< evicts expired connections and, with `evicts`, connections of lower worth
  };
  /// Inserts the originator's entry. The outcome is `present` if the key has an entry, perhaps a
  /// reply's. Calls `closed(id)` for an evicted connection while its state can still be read.
  template <class Closed>
  Insertion open(const K& key, Hash hash, Tick now, Closed&& closed,
                 Newcomer newcomer = Newcomer::unproved);

  /// Inserts the reply's entry of a connection; pass the entry's id to `confirm`, or later to
  /// `join`. The outcome is `present` if the key has an entry. May evict, as `open` does.
  template <class Closed>
  Insertion link(const K& reply_key, Tick now, std::span<const std::byte> state, Closed&& closed,
                 Newcomer newcomer = Newcomer::unproved);

  /// Makes an opened connection live, with its reply's entry if it has one: it ages, and all
  /// workers see it. `shard` is the connection's shard, if the tracker keeps shards.
  void confirm(ConnId id, ConnId reply = ConnId::none, unsigned shard = 0);
  /// Makes the two entries of a connection name each other. `reply` may be none.
  void join(ConnId id, ConnId reply) {
    if (reply != ConnId::none) set_peer(replies().header(reply), id);
    set_peer(originators().header(id), reply);
  }
  /// True if this worker opened the connection: only that worker may end it.
  bool is_mine(ConnId id) const { return life(originators(), id).owner_or_windows == worker_; }
  /// True from `confirm` until the connection ends.
  bool is_confirmed(ConnId id) const { return peer_of(originators().header(id)) != kUnconfirmed; }

  /// Undoes `open` and, if `reply` is given, `link`.
  void abandon(ConnId id, ConnId reply = ConnId::none) {
    erase_both(id, hash_of(Side::originator, id), reply);
  }

  /// Ends a connection that this worker has confirmed. Calls `closed(id)` as `open` does.
  template <class Closed>
  void close(ConnId id, Closed&& closed) {
    ageing_->gone(id);
    end_life(id, hash_of(Side::originator, id), closed);
  }
  void close(ConnId id) {
    close(id, [](ConnId) {});
  }

  /// Ends expired connections; checks `budget` connections at most. Calls `closed(id)` while their
  /// records can still be read. Returns true if no work is left at tick `now`.
  template <class Closed>
  bool sweep(Tick now, unsigned budget, Closed&& closed);

  /// @name Following packets, for a tracker with `TrackerConfig::follows`
  /// @{
  /// True if the connection is past its deadline: in `closed(id)`, if it has expired.
  bool is_idle_too_long(ConnId id, Tick now) const { return now - deadline(id) >= 0; }
  /// Returns the state of a connection, from its entry on that side.
  ConnectionState state_of(Side side, ConnId id) const {
    return follows_ ? load_state(life(table_of(side).records(), id)) : ConnectionState::none;
  }
  /// Returns the proof of a connection. `closed(id)` must give back what the proof has taken.
  Proof proof_of(ConnId id) const {
    return follows_ ? load_standing(life(originators(), id)).proof() : Proof::none;
  }
  /// Returns the key of a connection in `closed(id)`, when its record may already hold another key.
  const K& key_of(ConnId id) const { return id == leaving_ ? left_ : originators().header(id).key; }
  /// Returns the direction of the packets that match entry `id` of `side`.
  Direction direction(Side side, ConnId id) const {
    if (side == Side::reply) return Direction::reply;
    return peer_of(originators().header(id)) == ConnId::none ? Direction::only
                                                             : Direction::originator;
  }
  /// True if a SYN or INIT of the originator begins a new connection in place of this one.
  bool begins_anew(ConnId id, Signal signal) const;
  /// True if a packet that matches that side's entry may change more than `last_seen`, so that
  /// `follow` must be called.
  bool concerns(Side side, ConnId id, Signal signal, Tick now) const;
  /// Returns the mark (life.h) of the opposite side of a TCP connection, or 0 if there is none.
  std::uint32_t mark_of_other(Side side, ConnId id) const;
  enum class Followed : std::uint8_t {
    passed,
    reset_ignored,  ///< a RST out of sequence (RFC 5961, 3.2), or an ABORT with a wrong tag
    not_proved,     ///< a limit forbids the proof: nothing has changed
    invalid,        ///< with `TrackerConfig::checks`: not of this connection; nothing has changed
  };
  /// Advances the state of a connection by a packet that matches that side's entry. `segment` is
  /// read only for TCP connections with a reply's entry. Before a packet proves the connection,
  /// calls `limits.take(id)`, which returns what the proof has taken, or `none` if a limit forbids
  /// the proof. Calls `limits.give_back(id, proof)` when a connection that lives on no longer
  /// counts for limits. The code that ends a connection gives back what `proof_of` returns.
  template <class Limits>
  Followed follow(Side side, ConnId id, Signal signal, const Segment& segment, Tick now,
                  Limits& limits);
  /// Does what `follow` does for most ACKs of a tracker that checks packets, with their own entry
  /// only: for an ACK that changes no state, continues at its sender's mark or ends less than
  /// `kReach` before it, and acknowledges less than 64 KiB, which any window allows, beyond what
  /// its sender has acknowledged. Returns false, and does nothing, for other ACKs. Of each
  /// `kSettlingBytes`, at least one ACK is such another one.
  bool follow_alone(Side side, ConnId id, const Segment& ack) const;

  /// Advances the state of an SCTP association in the same way.
  template <class Limits>
  Followed follow(Side side, ConnId id, Signal signal, const Tags& tags, Tick now, Limits& limits);
  /// @}

  /// @name Moving connections to another worker or process
  /// @{
  /// Returns the first connection of a shard, or none.
  ConnId first_of(unsigned shard) const {
    return shards_->is_empty(shard) ? ConnId::none : shards_->first(shard);
  }
  /// Makes the first connection of a shard its last one.
  void rotate(unsigned shard);
  /// Returns what is kept of shards with a copy; null without `TrackerConfig::copies`.
  CopiedShards* copied() { return copied_ ? &*copied_ : nullptr; }
  const CopiedShards* copied() const { return copied_ ? &*copied_ : nullptr; }
  /// Prefetches what closing the first three connections of a shard will read: one of three parts
  /// for each. Call this function before each close, so that each connection gets all three parts.
  void prefetch_leaving(unsigned shard) const;
  /// Returns the tracker's own data of a connection, for `restore` in another tracker.
  LifeImage image(ConnId id, Tick now) const;
  /// Idle time in ms below which a connection is busy, for `fingerprint`.
  static constexpr std::int32_t kBusyMs = 10'000;
  /// Returns a digest of the originator's entry (key, standing, the function's state), the marks
  /// and the latest tick; never 0. The tick of a busy connection does not count, and the marks of a
  /// busy established connection count in steps of `kReach` / 2.
  std::uint32_t fingerprint(ConnId id, Tick now) const;
  /// Prefetches the reply's entry, if `fingerprint` will read it.
  void prefetch_entries(ConnId id, Tick now) const;
  /// The contents of a connection's entries to restore, besides its `LifeImage`.
  struct Restoring {
    K key;
    std::span<const std::byte> state;
    std::optional<K> reply_key;  ///< no value: there is no reply's entry
    std::span<const std::byte> reply_state;
  };
  /// Opens, in that shard, a connection that another tracker had. Returns none if a key is present
  /// or there is no room. Calls `closed(id)` for an evicted connection, as `open` does.
  template <class Closed>
  ConnId restore(const Restoring& connection, const LifeImage& image, Tick now, unsigned shard,
                 Newcomer newcomer, Closed&& closed);
  /// @}

  /// Takes over what another tracker says of a connection that this one has, too.
  void renew(ConnId id, const LifeImage& image, Tick now);

  /// Ends the burst, and with it the use of removed ids. Reclaims ids past their grace period.
  void reclaim() {
    reclaiming_.end_burst(pair(), [this] { return writing(); });
  }
  /// True if a sweep may remove more. False while too many removed ids wait to be reclaimed.
  bool may_sweep() const { return reclaiming_.has_room(); }
  /// True if all ids that this worker removed are reclaimed.
  bool has_reclaimed_all() const { return reclaiming_.is_empty(); }

  /// Returns the worst kind of pages among the tables.
  Pages pages() const { return std::max(table().pages(), table_of(Side::reply).pages()); }
  Result<void> check_invariants() const;

 private:
  using Reclaiming = typename Guarding::Reclaiming;
  static constexpr std::uint32_t kLookAgainMs = 10'000;
  struct Shared {
    [[no_unique_address]] Guarding guards;
    TablePair<Table> pair;
    ShardedCount connections;
    std::int64_t most;  // limit for `connections.has_room_or_share`
    ShardedCount half_open;
    std::size_t most_half_open;
    unsigned workers;
    RepeatedSyns syns;
  };
  struct Worth;
  auto worth(Side side, Tick now, Newcomer newcomer, std::uint8_t protocol);

  Tracker(const TrackerConfig& config, std::uint8_t worker, std::shared_ptr<Shared> shared,
          Reclaiming reclaiming, std::unique_ptr<Ageing> ageing, std::optional<Rings> shards,
          std::optional<CopiedShards> copied);

  TablePair<Table>& pair() const { return shared_->pair; }
  void count_unproved(ConnId id, std::int64_t more) const {
    if (more == 0) return;
    shared_->half_open.template add<Guarding::kShared>(life(originators(), id).owner_or_windows,
                                                       more);
  }
  void leave_life(ConnId id);

  template <class Found>
  std::uint64_t look_up(Side side, std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                        std::span<ConnId> ids, Stragglers stragglers, Found&& found) const;

  bool has(Side side) const { return side == Side::originator || has_replies(); }

  static void set_all_unconfirmed(const Table& table) {
    for (std::uint32_t i = 0; i < table.records().count(); ++i)
      table.records().header(ConnId{i}).peer = kUnconfirmed;
  }

  static Life& life(const Records<K>& records, ConnId id) {
    return *reinterpret_cast<Life*>(records.state(id));
  }
  static Acknowledged& acknowledged_by(const Records<K>& records, ConnId id) {
    return *reinterpret_cast<Acknowledged*>(records.state(id) + Acknowledged::kPlace);
  }
  /// Returns the age in ms, 0 at least: another worker's tick may be later than `now`. Only for
  /// protocols without a handshake.
  static std::uint32_t age_ms(Life& of, Tick now) {
    return static_cast<std::uint32_t>(std::max(now - Tick{load_mark(of)}, 0));
  }
  void begin_life(const Records<K>& records, ConnId id, Standing standing, Tick now) const;
  template <class Limits>
  bool change(Side side, ConnId id, Direction direction, Signal signal, Tick now, Limits& limits);
  bool is_in_sequence(Side side, ConnId id, Signal signal, const Segment& segment) const;
  bool is_expected(Side side, ConnId id, const Segment& segment) const;
  bool continues(Side side, ConnId id, const Segment& segment) const;
  bool is_plausible(Side side, ConnId id, std::uint32_t gap, const Segment& segment) const;
  bool is_within_windows(Side side, ConnId id, Signal signal, const Segment& segment) const;
  void settle(Side side, ConnId id) const;
  void advance(Side side, ConnId id, Signal signal, const Segment& segment) const;
  void raise_other(Side side, ConnId id, const Segment& segment) const;
  bool reopens(ConnId reply, const Segment& segment) const;
  void begin_sequence(Side side, ConnId id, Signal signal, const Segment& segment) const;
  bool is_of_association(Side side, ConnId id, Signal signal, const Tags& tags) const;
  bool is_tagged(Side side, ConnId id, Signal signal, const Tags& tags) const;
  bool restarts(Side side, ConnId id, const Tags& tags) const;
  void learn(Side side, ConnId id, Signal signal, const Tags& tags, ConnectionState was) const;

  /// Returns the timeout of a state; for `none`, except of TCP, that of the state that follows.
  std::uint32_t timeout(ConnectionState state, std::uint8_t protocol) const;
  std::uint32_t timeout_of(Side side, ConnId id) const {
    return timeout(state_of(side, id), table_of(side).records().header(id).key.protocol);
  }
  Tick capped(Tick now, Tick deadline) const;
  void prefetch_reply(ConnId id) const;
  Tick deadline(ConnId id) const { return latest_seen(id) + timeout_of(Side::originator, id); }
  Tick latest_seen(ConnId id) const;
  /// True if `fingerprint` reads the originator's entry only, to save the reply's cache miss.
  bool tells_alone(ConnId id, Tick now) const;

  /// True if the connection neither ages nor gives way to another.
  bool is_kept(ConnId id) const { return copied_ && copied_->is_kept(id); }
  /// Writes what an image says of a connection's entries; `reply` may be none.
  void set_life(ConnId id, ConnId reply, const LifeImage& image, Tick now) const;

  /// True if the connection of that side's entry is past its deadline.
  bool has_expired(Side side, ConnId id, Tick now) const;

  Hash hash_of(Side side, ConnId id) const {
    return hasher()(table_of(side).records().header(id).key);
  }
  template <class Closed>
  void end_life(ConnId id, Hash hash, Closed& closed) {
    leave_life(id);
    closed(id);
    erase_both(id, hash, originators().header(id).peer);
  }
  /// Ends the connection of an entry that was evicted from that side's table.
  template <class Closed>
  void make_way(Side side, const Insertion& in, Closed&& closed);
  /// Erases both entries, the originator's last: a worker that opens the connection again then
  /// finds the reply's key free.
  void erase_both(ConnId id, Hash hash, ConnId reply) {
    if (reply != ConnId::none) erase(Side::reply, reply, hash_of(Side::reply, reply));
    erase(Side::originator, id, hash);
  }
  void erase(Side side, ConnId id, Hash hash);
  /// Counts without atomic addition: only this worker writes its counter.
  void count_connections(std::int64_t more) {
    shared_->connections.template add<false>(worker_, more);
  }

  bool follows_;
  bool checks_;
  bool evicts_;
  std::uint8_t worker_;
  std::size_t capacity_;
  Timeouts timeouts_;
  std::int32_t least_timeout_;
  std::size_t own_bytes_;  // size of the tracker's data in front of the function's state
  std::size_t state_bytes_;
  std::size_t reply_state_bytes_;
  bool has_replies_;
  std::shared_ptr<Shared> shared_;
  [[no_unique_address]] Reclaiming reclaiming_;
  std::unique_ptr<Ageing> ageing_;
  bool leaves_expired_;
  std::optional<Rings> shards_;  // this worker's connections, a ring for each shard
  std::optional<CopiedShards> copied_;
  std::size_t live_ = 0;
  std::size_t half_open_from_ = 0;  // id from which the next half-open connection is looked for
  ConnId leaving_ = ConnId::none;   // evicted connection whose key is in `left_` only
  K left_;
};

}  // namespace millrace

#include "conntrack/tracker_associations.h"
#include "conntrack/tracker_ending.h"
#include "conntrack/tracker_finding.h"
#include "conntrack/tracker_following.h"
#include "conntrack/tracker_making.h"
#include "conntrack/tracker_moving.h"
#include "conntrack/tracker_opening.h"
