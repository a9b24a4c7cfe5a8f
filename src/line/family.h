// One address family's part of a line: the line's stages over the family's tables. The rules of
// line.h hold here, too. A line has one `Family` for IPv4 and one for IPv6.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conntrack/ageing/none.h"
#include "conntrack/tracker.h"
#include "core/burst.h"
#include "function/errors.h"
#include "function/function.h"
#include "line/carried.h"
#include "line/carried_layout.h"
#include "line/copied_shard.h"
#include "line/line.h"
#include "measure/worker_counters.h"
#include "parse/rewrite.h"
#include "parse/tcp.h"
#include "replicate/copy.h"

namespace millrace {

template <class TrackerType, class K>
class Family {
 public:
  using Guarding = typename TrackerType::Guarding;
  using Newcomer = typename TrackerType::Newcomer;

  /// Makes a family for each function, all over the same tables. Errors: functions that keep more
  /// than `Part::kMost` bytes (usage); as `Tracker::create`.
  static Result<std::vector<Family>> create(
      const LineConfig& config, std::size_t capacity, MakeAgeing& ageing, Guarding guards,
      std::span<Function* const> functions,
      std::span<const std::unique_ptr<WorkerCounters>> counters);

  bool tracks() const { return tracker_.has_value(); }
  const TrackerType& tracker() const { return *tracker_; }
  /// Returns the number of live connections that this worker opened.
  std::size_t live() const { return tracker_ ? tracker_->live() : 0; }
  TableReport report() const {
    if (!tracker_) return {};
    return {capacity_, tracker_->table().slots(), tracker_->connections(), tracker_->memory_bytes(),
            tracker_->pages()};
  }

  /// @name The family's part of `Line::visit` and `review`
  /// Visits some connections from the id `from` on. Returns the id to go on with, none at the end.
  /// RSTs leave by `port`; if `port` is null, none is sent. `ended` is raised by the number of
  /// connections that end.
  /// @{
  std::optional<std::size_t> visit(std::size_t from, Tick now, const VisitConnection& visit,
                                   Port* port);
  std::optional<std::size_t> review(std::size_t from, Port* port, std::size_t& ended);
  /// @}
  std::optional<ListedConnection> find(const K& key, Tick now) const;
  /// @name The family's part of the functions of `Line` with the same names
  /// @{
  std::optional<std::size_t> carry(std::size_t from, std::size_t most, Tick now,
                                   CarryingFor<K>& carrying);
  ConnId resume(const CarriedConnection<K>& carried, Line::Images images, Tick now, unsigned shard);
  void forget(ConnId id);
  /// Removes at most `most` connections of a shard, and appends those that have not expired to
  /// `parcel` as a block. True if the shard has no connection left.
  bool pack(unsigned shard, std::size_t most, Tick now, std::vector<std::byte>& parcel);
  /// Prefetches the places in the table for the `count` records of a block. Returns the bytes
  /// behind the block.
  std::span<const std::byte> approach(std::size_t count, std::span<const std::byte> records) const;
  /// Opens the connections of the `count` records of a block. One that finds no place, or that the
  /// function refuses, counts as ended. Returns the bytes behind the block.
  std::span<const std::byte> unpack(unsigned shard, std::size_t count,
                                    std::span<const std::byte> records, Tick now);
  /// From now on serves packets without an entry as `other`, the same family at another worker,
  /// serves them.
  void continue_from(const Family& other) { function_->continue_from(*other.function_); }
  /// Returns those of the lane's packets in `places` that have no connection here. `places` and the
  /// result are bits by place in the lane.
  std::uint64_t without_connection(const Lane<K>& lane, std::uint64_t places, Tick now) const {
    std::uint64_t without = 0;
    for_each_bit(places, [&](unsigned i) {
      const bool has_one = tracker_ && tracker_->peek_one(lane.key[i], now) != ConnId::none;
      without |= std::uint64_t{!has_one} << i;
    });
    return without;
  }
  void set_timeouts(const Timeouts& timeouts) {
    if (tracker_) tracker_->set_timeouts(timeouts);
  }

  /// @name The family's part of shards with a copy (family_copied.h), with `LineConfig::copies`
  /// @{
  void assign(unsigned shard, CopyRole role, Tick now);
  bool give_up(unsigned shard, std::size_t most);
  void tell_all(unsigned shard);
  void tell_unproved(unsigned shard);
  void set_deferring(unsigned shard, bool defers) {
    if (tracker_) copied_[shard].defers = defers;
  }
  void find_deferred(Burst& burst);
  void goes_on(unsigned shard) {
    if (tracker_) copied_[shard].was_master = false;
  }
  void begin_all(unsigned shard);
  void end_all(unsigned shard);
  bool tell(unsigned shard, ShardCopy& copy, Tick at, Tick now, std::size_t& budget);
  using Applied = ShardCopy::Records::Applied;
  /// `theirs`: the layout of the record; null: that of this line's.
  Applied apply(unsigned shard, std::span<const std::byte> record, const CarriedLayout* theirs,
                Tick now);
  /// @}

  void begin() {
    if (tracker_) tracker_->begin();
  }
  void end() {
    if (tracker_) tracker_->end();
  }
  /// Makes those ids reusable that this worker has removed and no worker uses any more. True if no
  /// id that this worker has removed is left to reclaim.
  bool reclaim() {
    if (!tracker_) return true;
    tracker_->reclaim();
    return tracker_->has_reclaimed_all();
  }

  void prefetch(Burst& burst) const {
    if (!tracker_) return;
    for_each_lane(burst, [this](Lane<K>& lane) {
      tracker_->hasher()(lane.keys(), std::span(lane.hash));
      tracker_->prefetch(lane.hashes());
    });
  }

  void prefetch_records(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_lane(burst, [this](Lane<K>& lane) {
      lane.stragglers = tracker_->prefetch_records(lane.keys(), lane.hashes());
    });
  }

  void prefetch_stragglers(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_lane(burst, [this](Lane<K>& lane) {
      tracker_->prefetch_stragglers(lane.keys(), lane.hashes(), lane.stragglers);
    });
  }

  /// Expires a bounded number of idle connections. True if no more are due at the tick `now`.
  bool age(Tick now) {
    if (!tracker_) return true;
    bool done = false;
    if (!tracker_->may_sweep()) {
      std::this_thread::yield();  // to a worker that may still use ids that wait to be reclaimed
    } else {
      [[maybe_unused]] const auto guard = tracker_->writing();
      done = tracker_->sweep(now, kSweepBudget, expired());
    }
    tracker_->reclaim();
    return done;
  }

  void find(Burst& burst) {
    Lane<K>& lane = burst.lane<K>();
    if (!tracker_ || lane.size == 0) return not_found(lane);
    [[maybe_unused]] const auto guard = tracker_->reading();
    lane.replies = look_up(lane, 0, lane.size, burst.now, lane.stragglers);
  }

  /// True if the burst has packets of this family without a connection.
  static bool has_unknown(Burst& burst) {
    return std::ranges::count(burst.lane<K>().connections(), ConnId::none) != 0;
  }
  /// Gives entries to the connections that begin in this burst. Packets in `refused` (bits by place
  /// in the burst) begin no connection.
  void open(Burst& burst, std::uint64_t refused);
  /// Gives entries to connections that have been served without entries and that a reply proves.
  void open_by_replies(Burst& burst);

  /// Follows the connections of this burst's packets, in the packets' order.
  void follow(Burst& burst) {
    if (!tracker_) return;
    Lane<K>& lane = burst.lane<K>();
    lane.advanced = 0;
    for (unsigned i = 0; i < lane.size; ++i) follow(burst, lane, i);
  }

  void serve(Burst& burst) {
    if (burst.quoted<K>().size != 0) [[unlikely]]
      find_errors(burst);
    if (tracker_) {
      serve(burst, tracker_->states());
      tracker_->reclaim();
    } else {
      serve(burst, States<K>(nothing_));
    }
  }

 private:
  static constexpr unsigned kSweepBudget = 64;

  template <class Decide>
  std::optional<std::size_t> for_each_from(std::size_t from, Ending why, Port* port,
                                           Decide&& decide);
  void tell_both(ConnId id, Port& port) const;

  std::optional<std::uint32_t> expires_ms(ConnId id, Tick now) const {
    if (!expires_) return std::nullopt;
    const std::int32_t ahead = tracker_->last_seen(id) - now;  // of this clock: another worker's
    return static_cast<std::uint32_t>(std::max(tracker_->due(id) - now - std::max(ahead, 0), 0));
  }
  struct Placed {
    ConnId id = ConnId::none;
    Ending why = Ending::moved;  ///< if `id` is none: how the connection ended
  };
  Placed place(const CarriedConnection<K>& carried, const LifeImage& life, Line::Images images,
               Tick now, unsigned shard, Newcomer newcomer);
  CarriedConnection<K> carried(ConnId id, Tick now) const;
  ListedConnection listed(ConnId id, Tick now) const {
    const K& key = tracker_->originators().header(id).key;
    const ConnId reply = peer_of(tracker_->originators().header(id));
    ListedConnection is{
        .key = key,
        .translated = translated(id),
        .has_reply = reply != ConnId::none,
        .state = tracker_->state_of(Side::originator, id),
        .idle_ms = static_cast<std::uint32_t>(std::max(now - tracker_->last_seen(id), 0)),
        .expires_ms = expires_ms(id, now)};
    function_->write(key, state_of(id), is.image.data());
    is.is_others =
        !copied_.empty() && copied_[tracker_->copied()->shard_of(id)].role == CopyRole::slave;
    return is;
  }

  using Change = typename CopiedShard<K>::Change;

  void note_change(ConnId id);
  void note_end(ConnId id);
  void enqueue(unsigned shard, const K& key, ConnId id);
  void tell(Change& change, CopyRole role, ShardCopy& copy, Tick at, Tick now);
  void note_acknowledged(CopiedShard<K>& shard, const ShardCopy& copy);
  bool is_there(const Change& change) const {
    return tracker_->is_live_and_mine(change.id) &&
           tracker_->originators().header(change.id).key == change.key;
  }
  void walk(unsigned shard, std::size_t& budget);
  void end_copied(ConnId id);
  void replace(ConnId id);
  ConnId mine_with(const K& key, unsigned shard, Tick now) const;
  bool find_images(std::span<const std::byte> images, const CarriedLayout* theirs);
  bool renew(ConnId id, const CarriedConnection<K>& record, std::span<const std::byte> images,
             const CarriedLayout* theirs, Tick now);
  static LifeImage in_resync(const CarriedConnection<K>& record);

  Family(std::optional<TrackerType> tracker, const LineConfig& config, std::size_t capacity,
         Function& function, WorkerCounters& counters);
  static TrackerConfig tracker_config(const LineConfig& config, std::size_t capacity,
                                      MakeAgeing& ageing, const FunctionFor<K>& function,
                                      bool checks);

  /// Returns the bytes of a connection in a parcel.
  std::size_t record_bytes() const {
    return sizeof(CarriedConnection<K>) + function_->part().image_bytes;
  }

  static bool is_empty(Burst& burst) {
    return (burst.lane<K>().size | burst.quoted<K>().size) == 0;
  }

  /// Calls `each` for the family's lane and, if there are ICMP errors, for the lane of these.
  template <class Each>
  static void for_each_lane(Burst& burst, Each&& each) {
    each(burst.lane<K>());
    if (burst.quoted<K>().size != 0) [[unlikely]]
      each(burst.quoted<K>());
  }
  static void not_found(Lane<K>& lane) {
    lane.replies = 0;
    std::ranges::fill(lane.connections(), ConnId::none);
  }

  /// Returns the function that the tracker calls for a connection that has expired.
  auto expired() {
    return [this](ConnId id) { closed(id, ending(tracker_->state_of(Side::originator, id))); };
  }
  /// Returns the function that the tracker calls for a connection that goes on elsewhere, or in
  /// another entry.
  auto moved() {
    return [this](ConnId id) { closed(id, Ending::moved); };
  }
  /// Returns the function that the tracker calls for a connection whose place a new one gets: an
  /// evicted or an expired connection.
  auto gives_way(Tick now) {
    return [this, now](ConnId id) {
      if (tracker_->is_idle_too_long(id, now)) return expired()(id);
      closed(id, Ending::evicted);
    };
  }
  void closed(ConnId id, Ending why) {
    const Proof proof = tracker_->proof_of(id);
    counters_->closed[static_cast<std::size_t>(why)].add(1);
    give_back_source(id, proof);
    if (!copied_.empty()) note_end(id);
    function_->event(Event::closed, tracker_->key_of(id), state_of(id), holds(proof));
  }
  void serve(Burst& burst, const States<K>& states) {
    begin_serving<K>(burst);
    function_->serve(burst, burst.lane<K>().all(), states);
    if (has_idle_packets_) restore_idle_time(burst);
    rewrite<K>(burst);
    if (burst.quoted<K>().size != 0) [[unlikely]]
      send_errors_on(burst, *function_,
                     [this](Side side, const K& key, ConnId id) { return target(side, key, id); });
  }

  /// Lets the idle time of entries go on whose packets do not count as activity.
  void restore_idle_time(Burst& burst) {
    const Lane<K>& lane = burst.lane<K>();
    for_each_bit(lane.idle, [&](unsigned i) {
      const ConnId id = lane.connection[i];
      if (id != ConnId::none)
        see_instead(tracker_->originators().header(id), burst.now, lane.seen[i]);
    });
  }

  using Target = typename FunctionFor<K>::Target;
  /// Returns how packets with that key leave. Their entry is `id`, of that side of the connection.
  Target target(Side side, const K& key, ConnId id) const {
    const ConnId peer = peer_of(tracker_->originators().header(id));
    if (peer != ConnId::none && peer != kUnconfirmed)
      return {reversed(tracker_->originators().header(peer).key), std::nullopt};
    return side == Side::originator ? function_->target(key, state_of(id))
                                    : Target{key, std::nullopt};
  }
  Target target(ConnId id) const {
    return target(Side::originator, tracker_->originators().header(id).key, id);
  }
  /// Returns the key of the originator's packets as they leave. If the function has chosen a next
  /// hop, the destination is that next hop.
  K translated(ConnId id) const {
    const auto to = target(id);
    K key = to.key;
    if (to.next_hop) key.destination = *to.next_hop;
    return key;
  }
  const std::byte* state_of(ConnId id) const { return tracker_->states()[id]; }

  /// The limits of connections. The tracker asks them before a packet proves a connection.
  struct Limits {
    Family& family;
    Verdict reached = Verdict::tracked;  ///< the limit that forbids the connection; `tracked`: none

    Proof take(ConnId id) { return family.take_for(id, reached); }
    void give_back(ConnId id, Proof proof) {
      family.give_back_source(id, proof);
      family.function_->event(Event::unproved, family.tracker_->key_of(id), family.state_of(id),
                              true);
    }
  };
  Proof take_for(ConnId id, Verdict& reached);
  Proof take_again(const K& key, Proof had);
  void give_back_source(ConnId id, Proof proof);
  bool source_has_room(const K& key) const {
    return sources_ == nullptr || sources_->has_room(sources_->source_of(key));
  }

  /// Returns how a connection that expires in that state has ended.
  static Ending ending(ConnectionState state) {
    using enum ConnectionState;
    if (state == closed || state == sctp_aborted) return Ending::reset;
    const bool both_ended = state == last_ack || state == time_wait ||
                            state == sctp_shutdown_ack_sent || state == sctp_closed;
    return both_ended ? Ending::finished : Ending::timed_out;
  }

  /// Follows the connection of the lane's packet `i`. Most packets change nothing.
  void follow(Burst& burst, Lane<K>& lane, unsigned i) {
    const ConnId id = lane.connection[i];
    if (id == ConnId::none) return;
    if (checks_ && burst.signal[lane.packet[i]] == Signal::ack && follow_alone(burst, lane, i))
      return;
    if (tracker_->concerns(lane.side(i), id, burst.signal[lane.packet[i]], burst.now))
      lead(burst, lane, i);
  }
  bool follow_alone(const Burst& burst, const Lane<K>& lane, unsigned i) const;
  void lead(Burst& burst, Lane<K>& lane, unsigned i);
  void refuse(Burst& burst, Lane<K>& lane, unsigned i);

  /// True if a packet may begin a connection, or belong to the midst of one that has no entry.
  bool begins(Signal signal) const {
    const Direction from = tracker_->has_replies() ? Direction::originator : Direction::only;
    return millrace::begins(signal, from);
  }
  void prefetch_likely_replies(const Lane<K>& lane, std::uint64_t begin) const;
  void end_what_begins_anew(Burst& burst, Lane<K>& lane);
  void admit(Burst& burst, Lane<K>& lane, unsigned i);
  Insertion insert(const K& key, Hash hash, Tick now, Newcomer newcomer);
  void complete(Burst& burst, Lane<K>& lane, unsigned i);
  void prepare(const K& key, std::uint8_t packet, ConnId id, bool by_reply);
  Insertion link(const Burst& burst);
  void confirm(const Burst& burst, ConnId id, ConnId reply);
  void give_up(Burst& burst, Lane<K>& lane, unsigned i, Verdict why);
  static bool shows_a_connection(const Burst& burst, unsigned packet);
  ConnId open_by_reply(Burst& burst, Lane<K>& lane, unsigned i);
  /// Returns the reply's entry of a connection if that entry's key is `key`; else none.
  ConnId reply_of(ConnId id, const K& key) const {
    // Read once: another worker may be ending the connection.
    const ConnId reply = peer_of(tracker_->originators().header(id));
    const bool is_it = reply != ConnId::none && reply != kUnconfirmed &&
                       tracker_->replies().header(reply).key == key;
    return is_it ? reply : ConnId::none;
  }

  void watch_level();
  void decide_unopened(Burst& burst, Lane<K>& lane, bool looks_again);

  /// Returns the lane's packets without a connection, bits by place in the lane.
  static std::uint64_t unknown(const Lane<K>& lane) {
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < lane.size; ++i)
      bits |= std::uint64_t{lane.connection[i] == ConnId::none} << i;
    return bits;
  }
  /// Looks up the `count` packets of the lane from place `from` on. Returns those that found the
  /// reply's entry, bits by place behind `from`.
  std::uint64_t look_up(Lane<K>& lane, unsigned from, unsigned count, Tick now,
                        Stragglers stragglers) {
    const auto keys = lane.keys().subspan(from, count);
    const auto hashes = lane.hashes().subspan(from, count);
    const auto ids = lane.connections().subspan(from, count);
    return checks_ || has_idle_packets_
               ? tracker_->find_to_check(keys, hashes, now, ids,
                                         lane.seen_before().subspan(from, count), stragglers)
               : tracker_->find(keys, hashes, now, ids, stragglers);
  }
  /// Looks the lane's packet `i` up once more, as its connection may have been opened since. True
  /// if the packet now has a connection.
  bool find_again(Lane<K>& lane, unsigned i, Tick now) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const bool is_reply = look_up(lane, i, 1, now, {}) != 0;
    if (lane.connection[i] == ConnId::none) return false;
    lane.replies = is_reply ? lane.replies | bit : lane.replies & ~bit;
    return true;
  }

  /// Finds the connections that the burst's ICMP errors are about. Called late, since this burst
  /// may have opened such a connection. An error does not count as a packet of the connection, so
  /// the connection's idle time goes on.
  void find_errors(Burst& burst) {
    Lane<K>& lane = burst.quoted<K>();
    if (!tracker_) return not_found(lane);
    [[maybe_unused]] const auto guard = tracker_->reading();
    lane.replies =
        tracker_->peek(lane.keys(), lane.hashes(), burst.now, lane.connections(), lane.stragglers);
  }

  std::optional<TrackerType> tracker_;
  std::size_t capacity_;
  bool expires_;  // false: idle connections stay
  bool checks_;
  bool has_idle_packets_;
  bool replaces_half_open_;
  std::shared_ptr<SourceCounts> sources_;  // null: sources have no limit
  FunctionFor<K>* function_;
  WorkerCounters* counters_;
  unsigned level_ = 0;                    // number of watermarks that the tables' fill has passed
  std::vector<std::size_t> image_bytes_;  // size of each function's image
  std::vector<const std::byte*> images_;  // images of the connection being unpacked or copied
  std::vector<CopiedShard<K>> copied_;    // empty: no shard has a copy
  Opening<K> opening_;
  // The function's part of the reply's entry, for the connection being opened.
  alignas(8) std::array<std::byte, Part::kMost> reply_state_;
  std::array<std::byte, Part::kMost> mapped_;  // images of a record of another layout
  Records<K> nothing_;
};

}  // namespace millrace

#include "line/family_asked.h"
#include "line/family_carried.h"
#include "line/family_copied.h"
#include "line/family_following.h"
#include "line/family_making.h"
#include "line/family_opening.h"
