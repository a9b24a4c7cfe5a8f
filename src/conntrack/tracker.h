// The tracker: where table, sharing scheme and ageing scheme meet, for one address family.
//
// A connection has an entry by the key of its originator's packets, and where its replies are
// tracked another one by theirs. Both stand in one table, each keyed as its packets arrive; the
// record says which of the two it is. A tracker that does not follow packets, as the library's, has
// no room for that: it has a table for each side. The entries of a connection name each other as
// `peer`, age together and go together. They age where they were opened: each worker has a tracker,
// with an ageing scheme of its own, over tables that may be shared.
//
// A connection's way: `open` inserts the originator's entry, `link` the reply's if there is one,
// `confirm` hands it to ageing; `sweep` or `close` ends it. What was opened and not confirmed in
// the same burst must be abandoned. Ids that are removed during a burst stay readable until
// `settle`, and under sharing until every worker has settled since.
//
// One worker uses an instance. Where tables are shared, its stages stand under guards: `reading()`
// while it looks up, `writing()` from an `open` to its `confirm` or `abandon`, and while it sweeps.
// What others may write meanwhile, when it was last seen, is accessed atomically.
//
// Connections that may move to another worker's tracker, over tables of its own, are kept in
// shards.
//
// A tracker that follows packets (`follow`) keeps a state for each connection, by which it ages
// (state.h); others have one timeout for all.
//
// Nobody sees a connection half made: guards see to that, or, where several workers change tables
// at once, the record itself. Its `peer` says that it is unconfirmed in every record that no
// confirmed connection has; `confirm` publishes all that was written before. Who looks for an
// unconfirmed entry does not find it, and who wants to open what another worker is opening tries
// again when its own openings are confirmed: so nobody waits in a circle.
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

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
class Tracker {
 public:
  using Table = TableOf<K>;
  using Guarding = GuardsType;

  /// Those of `workers`, over the same tables; more than one where the guards are made for sharing.
  static Result<std::vector<Tracker>> create(const TrackerConfig& config, Guarding guards,
                                             unsigned workers);
  /// The only one over its tables.
  static Result<Tracker> create(const TrackerConfig& config) {
    auto trackers = create(config, Guarding{}, 1);
    if (!trackers) return std::unexpected(trackers.error());
    return std::move(trackers->front());
  }

  const Hasher& hasher() const { return table().hasher(); }
  const Records<K>& originators() const { return table().records(); }
  const Records<K>& replies() const { return table_of(Side::reply).records(); }
  bool has_replies() const { return has_replies_; }
  /// The function's states in that side's records.
  States<K> states(Side side = Side::originator) const {
    return States<K>(table_of(side).records(), own_bytes_);
  }

  const Table& table() const { return pair().originators; }
  /// Where it follows: which entry of its connection that is.
  Side side_of(ConnId id) const {
    const bool is_reply = follows_ && load_standing(life(originators(), id)).is_of_reply();
    return is_reply ? Side::reply : Side::originator;
  }
  /// Connections that its tables hold, of all workers; some may just be begun.
  std::size_t connections() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(shared_->connections.total(), 0));
  }
  /// Connections that it has confirmed and that live.
  std::size_t live() const { return live_; }
  std::size_t memory_bytes() const {
    return table().memory_bytes() + (pair().replies ? pair().replies->memory_bytes() : 0) +
           ageing_->memory_bytes() + (shards_ ? shards_->memory_bytes() : 0);
  }

  /// Calls `each(id)` for the originators' entries of all in its tables; at rest.
  template <class Each>
  void for_each(Each&& each) const {
    const auto visit = [&](ConnId id) {
      if (side_of(id) == Side::originator) each(id);
    };
    for (auto at = Cursor::begin; at != Cursor::end;) at = table().walk(at, kDrainingRoom, visit);
  }
  /// Whether it is the originator's entry of a connection that this worker has confirmed, and still
  /// has; `ids()` is one past the last id.
  bool is_live_and_mine(ConnId id) const {
    return is_confirmed(id) && side_of(id) == Side::originator &&
           (!Guarding::kShared || is_mine(id));
  }
  std::size_t ids() const { return originators().count(); }
  /// When a packet of either direction met the connection.
  Tick last_seen(ConnId id) const { return latest_seen(id); }
  /// When it ends, if none comes.
  Tick due(ConnId id) const { return deadline(id); }

  /// @name Guards
  /// @{
  auto reading() const { return shared_->guards.reading(); }
  auto writing() const { return shared_->guards.writing(); }
  /// Its worker begins, and ends: others wait for it only in between.
  void begin() { settling_.begin(); }
  void end() { settling_.end(); }
  /// @}

  /// The pipeline of ConnectionTable. `side` counts where each has a table of its own.
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

  /// Finds a burst's entries and marks those found as seen now. Returns a bit for each that is a
  /// reply's, where it follows.
  std::uint64_t find(std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                     std::span<ConnId> ids, Stragglers stragglers = {},
                     Side side = Side::originator) {
    return look_up(side, keys, hashes, now, ids, stragglers,
                   [now](auto& header) { see(header, now); });
  }

  /// Finds them, and leaves them as they are.
  std::uint64_t peek(std::span<const K> keys, std::span<const Hash> hashes, Tick now,
                     std::span<ConnId> ids, Stragglers stragglers = {}) const {
    return look_up(Side::originator, keys, hashes, now, ids, stragglers, [](auto&) {});
  }

  /// The connection of that key, in either direction where it follows, or none; it stays as it is.
  ConnId peek_one(const K& key, Tick now) const;

  /// From now on. A connection whose timeout gets shorter ends when its ageing scheme looks at it
  /// next: within `kLookAgainMs`, or as it would have.
  void set_timeouts(const Timeouts& timeouts) {
    timeouts_ = timeouts;
    least_timeout_ = timeouts.least();
  }

  /// Whether a connection that nothing proves yet may be opened.
  enum class Room : std::uint8_t { there_is, over_budget, full };
  Room room() const;
  /// What its tables hold, of their capacity; where they do not count that, what this worker has,
  /// of its share.
  unsigned fill_percent() const {
    const std::size_t held = Guarding::kConcurrent ? live_ * shared_->workers : connections();
    return static_cast<unsigned>(held * 100 / capacity_);
  }

  /// In whose place a connection may be opened.
  enum class Newcomer : std::uint8_t {
    adopted,   ///< nobody's
    unproved,  ///< of an expired one
    proved,    ///< and, where the tracker evicts, of one that would be missed less
  };
  /// Inserts the originator's entry. Where the key is there it is `present`: the entry may be a
  /// reply's. For what gives way `closed(id)` is called with its state still readable.
  template <class Closed>
  Insertion open(const K& key, Hash hash, Tick now, Closed&& closed,
                 Newcomer newcomer = Newcomer::unproved);

  /// Inserts the reply's entry of a connection that was opened in this burst: `inserted`, `present`
  /// where the key is there, or `full`. `confirm` wants its id. As in `open`, another connection
  /// may give way.
  template <class Closed>
  Insertion link(const K& reply_key, Tick now, std::span<const std::byte> state, Closed&& closed,
                 Newcomer newcomer = Newcomer::unproved);

  /// The connection and its reply's entry, if it has one, stay: from now on it ages, and everybody
  /// sees it. It belongs to that shard, if there are any.
  void confirm(ConnId id, ConnId reply = ConnId::none, unsigned shard = 0);
  /// Gives a confirmed connection a reply's entry.
  void join(ConnId id, ConnId reply) {
    if (reply != ConnId::none) set_peer(replies().header(reply), id);
    set_peer(originators().header(id), reply);
  }
  /// Whether this worker opened it: others must not end it.
  bool is_mine(ConnId id) const { return life(originators(), id).owner_or_windows == worker_; }
  /// False while the worker that opened it has not confirmed it.
  bool is_confirmed(ConnId id) const { return peer_of(originators().header(id)) != kUnconfirmed; }

  /// Undoes `open`, and `link`.
  void abandon(ConnId id, ConnId reply = ConnId::none) {
    erase_both(id, hash_of(Side::originator, id), reply);
  }

  /// Ends a connection that it has confirmed; `closed(id)` as in `open`.
  template <class Closed>
  void close(ConnId id, Closed&& closed) {
    ageing_->gone(id);
    end_life(id, hash_of(Side::originator, id), closed);
  }
  void close(ConnId id) {
    close(id, [](ConnId) {});
  }

  /// Ends connections that were idle too long, a bounded number; `closed(id)` is called with the
  /// records still readable. True when nothing is left to do at that time.
  template <class Closed>
  bool sweep(Tick now, unsigned budget, Closed&& closed);

  /// @name Following, where it does
  /// @{
  /// Whether it was idle too long; of one that has just given way, too.
  bool is_idle_too_long(ConnId id, Tick now) const { return now - deadline(id) >= 0; }
  /// The state of a connection, by its entry on that side.
  ConnectionState state_of(Side side, ConnId id) const {
    return follows_ ? load_state(life(table_of(side).records(), id)) : ConnectionState::none;
  }
  /// While `closed(id)` is called: what its proof has taken, and its key, which the record may have
  /// no more.
  Proof proof_of(ConnId id) const {
    return follows_ ? load_standing(life(originators(), id)).proof() : Proof::none;
  }
  const K& key_of(ConnId id) const { return id == leaving_ ? left_ : originators().header(id).key; }
  /// Whose packets meet that entry.
  Direction direction(Side side, ConnId id) const {
    if (side == Side::reply) return Direction::reply;
    return peer_of(originators().header(id)) == ConnId::none ? Direction::only
                                                             : Direction::originator;
  }
  /// Whether a SYN of the originator begins another connection in place of the one found.
  bool begins_anew(ConnId id) const {
    return next_state(state_of(Side::originator, id), direction(Side::originator, id), Signal::syn,
                      kProtocolTcp, 0) == kAnew;
  }
  /// Whether a packet that meets that side's entry may change more than the time, so that `follow`
  /// is to be told.
  bool concerns(Side side, ConnId id, Signal signal, Tick now) const {
    const Direction from = direction(side, id);
    if (is_tcp(signal) && from != Direction::only) return true;  // its sequence numbers
    Life& own = life(table_of(side).records(), id);
    return !lasts(load_state(own), from, signal, age_ms(own, now));
  }
  /// The mark (life.h) of the other side of TCP whose replies come this way; 0 where it has none.
  std::uint32_t mark_of_other(Side side, ConnId id) const;
  enum class Followed : std::uint8_t {
    passed,
    reset_ignored,  ///< a RST that is out of place, which changes nothing (RFC 5961, 3.2)
    not_proved,     ///< a limit forbids what it would prove: as if it had not come
  };
  /// A packet has met that side's entry. `segment` is wanted for TCP whose replies come this way.
  /// Before something proves the connection, `limits.take(id)` is asked what that takes, `none`
  /// where it may not be; `limits.give_back(id, proof)` is told when it holds no more, although the
  /// connection lives on. Who ends it gives back what `proof_of` says.
  template <class Limits>
  Followed follow(Side side, ConnId id, Signal signal, const Segment& segment, Tick now,
                  Limits& limits);
  /// @}

  /// @name Moving to another worker, or process
  /// @{
  /// The first connection of a shard; none: it is empty.
  ConnId first_of(unsigned shard) const {
    return shards_->is_empty(shard) ? ConnId::none : shards_->first(shard);
  }
  /// Asks memory for what closing the next connections of a shard will need. What one needs is
  /// known a step at a time, so the next three are each a step further: call it once for each that
  /// is closed.
  void prefetch_leaving(unsigned shard) const;
  /// The entries of a connection, but for the keys and what the function knows.
  LifeImage image(ConnId id, Tick now) const;
  /// Never 0. Almost surely another one where the image or the keys have changed; but so long as
  /// packets come at least every `kBusyMs`, not when the last one came, and the mark of an
  /// established connection may have moved by less than `kReach` / 2.
  static constexpr std::int32_t kBusyMs = 10'000;
  std::uint32_t fingerprint(ConnId id, Tick now) const;
  void prefetch_entries(ConnId id, Tick now) const;
  /// What its entries are to hold, beside its life.
  struct Restoring {
    K key;
    std::span<const std::byte> state;
    std::optional<K> reply_key;  ///< none: it has no such entry
    std::span<const std::byte> reply_state;
  };
  /// Opens a connection that another tracker had, in that shard; none where its keys have no place.
  /// For what gives way `closed(id)` is called as in `open`.
  template <class Closed>
  ConnId restore(const Restoring& connection, const LifeImage& image, Tick now, unsigned shard,
                 Newcomer newcomer, Closed&& closed);
  /// @}

  /// Ends the burst: its worker keeps no id that was removed.
  void settle() {
    settling_.end_burst(pair(), [this] { return writing(); });
  }
  /// Whether a sweep may remove more; not while too much drains that other workers may still use.
  bool may_sweep() const { return settling_.has_room(); }
  /// Whether nothing drains that this worker removed.
  bool is_settled() const { return settling_.is_empty(); }

  /// The worst kind of pages among its tables.
  Pages pages() const { return std::max(table().pages(), table_of(Side::reply).pages()); }
  Result<void> check_invariants() const;

 private:
  using Settling = typename Guarding::Settling;
  static constexpr std::uint32_t kLookAgainMs = 10'000;
  struct Shared {
    [[no_unique_address]] Guarding guards;
    TablePair<Table> pair;
    ShardedCount connections;
    std::int64_t most;  // connections, beyond which each worker may still have its share
    ShardedCount half_open;
    std::size_t most_half_open;
    unsigned workers;
    RepeatedSyns syns;
  };
  struct Worth;
  auto worth(Side side, Tick now, Newcomer newcomer, std::uint8_t protocol);

  Tracker(const TrackerConfig& config, std::uint8_t worker, std::shared_ptr<Shared> shared,
          Settling settling, std::unique_ptr<Ageing> ageing, std::optional<Rings> shards)
      : follows_(config.follows),
        evicts_(config.evicts),
        worker_(worker),
        capacity_(config.capacity),
        timeouts_(config.timeouts),
        least_timeout_(config.timeouts.least()),
        own_bytes_(config.state_offset()),
        state_bytes_(config.state_bytes),
        reply_state_bytes_(config.reply_state_bytes.value_or(0)),
        has_replies_(config.reply_state_bytes.has_value()),
        shared_(std::move(shared)),
        settling_(std::move(settling)),
        ageing_(std::move(ageing)),
        leaves_expired_(!Guarding::kShared && ageing_->leaves_expired()),
        shards_(std::move(shards)) {}

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
  const Table& table_of(Side side) const {
    return side == Side::reply && pair().replies ? *pair().replies : pair().originators;
  }

  static void set_all_unconfirmed(const Table& table) {
    for (std::uint32_t i = 0; i < table.records().count(); ++i)
      table.records().header(ConnId{i}).peer = kUnconfirmed;
  }

  static Life& life(const Records<K>& records, ConnId id) {
    return *reinterpret_cast<Life*>(records.state(id));
  }
  /// Other workers' ticks may be later.
  static std::uint32_t age_ms(Life& of, Tick now) {
    return static_cast<std::uint32_t>(std::max(now - Tick{load_mark(of)}, 0));
  }
  void begin_life(const Records<K>& records, ConnId id, Standing standing, Tick now) const {
    Life& of = life(records, id);
    store_standing(of, standing);
    store_mark(of, records.header(id).key.protocol == kProtocolTcp ? 0 : now.ms);
    store_windows(of, {});
  }
  template <class Limits>
  bool change(Side side, ConnId id, Direction direction, Signal signal, Tick now, Limits& limits);
  bool is_in_sequence(Side side, ConnId id, Signal signal, const Segment& segment) const;
  bool is_expected(Side side, ConnId id, const Segment& segment) const;
  bool continues(Side side, ConnId id, const Segment& segment) const;
  void advance(Side side, ConnId id, Signal signal, const Segment& segment) const;
  bool reopens(ConnId reply, const Segment& segment) const;
  void begin_sequence(Side side, ConnId id, Signal signal, const Segment& segment) const;

  /// Where nothing was followed yet, that of the state in which a first packet leaves it.
  std::uint32_t timeout(ConnectionState state, std::uint8_t protocol) const {
    if (follows_ && state == ConnectionState::none && protocol != kProtocolTcp)
      state = next_state(state, Direction::originator, Signal::packet, protocol, 0);
    return timeouts_[state];
  }
  std::uint32_t timeout_of(Side side, ConnId id) const {
    return timeout(state_of(side, id), table_of(side).records().header(id).key.protocol);
  }
  /// Where tables are shared a deadline may come nearer on another worker, which cannot tell this
  /// one's ageing: so it looks again before long.
  Tick capped(Tick now, Tick deadline) const {
    if constexpr (!Guarding::kShared) return deadline;
    const Tick cap = now + kLookAgainMs;
    return follows_ && deadline - cap > 0 ? cap : deadline;
  }
  void prefetch_reply(ConnId id) const {
    const ConnId reply = originators().header(id).peer;
    if (reply != ConnId::none) replies().prefetch(reply);
  }
  Tick deadline(ConnId id) const { return latest_seen(id) + timeout_of(Side::originator, id); }
  Tick latest_seen(ConnId id) const;
  /// Whether a fingerprint is of the originator's entry alone: the reply's is far away in memory.
  bool tells_alone(ConnId id, Tick now) const;

  /// Whether the connection of that side's entry is past its deadline.
  bool has_expired(Side side, ConnId id, Tick now) const;

  /// Whole entries: a life, then the function's state.
  struct Copied {
    const K& key;
    const std::byte* entry;
    const K* reply_key;  // null: it has no such entry
    const std::byte* reply_entry;
    Tick seen;
  };
  template <class Closed>
  ConnId place(const Copied& connection, Tick now, unsigned shard, Newcomer newcomer,
               Closed&& closed);

  Hash hash_of(Side side, ConnId id) const {
    return hasher()(table_of(side).records().header(id).key);
  }
  template <class Closed>
  void end_life(ConnId id, Hash hash, Closed& closed) {
    leave_life(id);
    closed(id);
    erase_both(id, hash, originators().header(id).peer);
  }
  /// Ends the connection whose entry on that side gave way to another; that entry itself is gone.
  template <class Closed>
  void make_way(Side side, const Insertion& in, Closed&& closed);
  /// The originator's entry goes last: who opens the connection again finds its reply's key free.
  void erase_both(ConnId id, Hash hash, ConnId reply) {
    if (reply != ConnId::none) erase(Side::reply, reply, hash_of(Side::reply, reply));
    erase(Side::originator, id, hash);
  }
  void erase(Side side, ConnId id, Hash hash);
  /// Whoever opened one ends it, so no other worker counts there.
  void count_connections(std::int64_t more) {
    shared_->connections.template add<false>(worker_, more);
  }

  bool follows_;
  bool evicts_;
  std::uint8_t worker_;
  std::size_t capacity_;
  Timeouts timeouts_;
  std::int32_t least_timeout_;
  std::size_t own_bytes_;  // in front of functions' states
  std::size_t state_bytes_;
  std::size_t reply_state_bytes_;
  bool has_replies_;
  std::shared_ptr<Shared> shared_;
  [[no_unique_address]] Settling settling_;
  std::unique_ptr<Ageing> ageing_;
  bool leaves_expired_;
  std::optional<Rings> shards_;  // of this worker's connections
  std::size_t live_ = 0;
  ConnId leaving_ = ConnId::none;  // whose key is not in its record any more, but here
  K left_;
};

}  // namespace millrace

#include "conntrack/tracker_ending.h"
#include "conntrack/tracker_finding.h"
#include "conntrack/tracker_following.h"
#include "conntrack/tracker_making.h"
#include "conntrack/tracker_moving.h"
#include "conntrack/tracker_opening.h"
