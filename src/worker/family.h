// One address family's part of a line: its stages over the family's tables.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "conntrack/tracker.h"
#include "core/burst.h"
#include "function/function.h"
#include "measure/worker_counters.h"
#include "millrace/detail/waiting.h"
#include "parse/tcp.h"
#include "worker/line.h"

namespace millrace {

template <class TrackerType, class K>
class Family {
 public:
  using Guarding = typename TrackerType::Guarding;

  /// One for each function, over the same tables.
  static Result<std::vector<Family>> create(
      const LineConfig& config, std::size_t capacity, MakeAgeing& ageing, Guarding guards,
      std::span<Function* const> functions,
      std::span<const std::unique_ptr<WorkerCounters>> counters) {
    const auto count = static_cast<unsigned>(functions.size());
    std::vector<std::optional<TrackerType>> trackers(count);
    if (functions.front()->stateful()) {
      auto made = TrackerType::create(
          tracker_config(config, capacity, ageing, functions.front()->family<K>()),
          std::move(guards), count);
      if (!made) return std::unexpected(made.error());
      std::ranges::move(*made, trackers.begin());
    }
    std::vector<Family> families;
    for (unsigned n = 0; n < count; ++n) {
      families.push_back(Family(std::move(trackers[n]), config, capacity, functions[n]->family<K>(),
                                *counters[n]));
    }
    return families;
  }

  bool tracks() const { return tracker_.has_value(); }
  const TrackerType& tracker() const { return *tracker_; }
  /// Live connections that this worker opened.
  std::size_t live() const { return tracker_ ? tracker_->live() : 0; }
  TableReport report() const {
    if (!tracker_) return {};
    const auto& table = tracker_->table();
    return {capacity_, table.slots(), table.size(), tracker_->memory_bytes(), tracker_->pages()};
  }

  void list(Tick now, const ListConnection& each) const {
    if (!tracker_) return;
    tracker_->for_each([&](ConnId id) {
      each({tracker_->originators().header(id).key, tracker_->state_of(Side::originator, id),
            static_cast<std::uint32_t>(std::max(now - tracker_->last_seen(id), 0))});
    });
  }

  void begin() {
    if (tracker_) tracker_->begin();
  }
  void end() {
    if (tracker_) tracker_->end();
  }
  /// True when nothing is left that this worker has removed and others may still use: nobody
  /// releases it but itself.
  bool settle() {
    if (!tracker_) return true;
    tracker_->settle();
    return tracker_->is_settled();
  }

  void sides(Burst& burst) { function_->sides(burst); }

  void prefetch(Burst& burst) const {
    if (!tracker_) return;
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      tracker_->hasher()(lane.keys(), std::span(lane.hash));
      tracker_->prefetch(side, lane.hashes());
    });
  }

  void prefetch_records(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      lane.stragglers = tracker_->prefetch_records(side, lane.keys(), lane.hashes());
    });
  }

  void prefetch_stragglers(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      tracker_->prefetch_stragglers(side, lane.keys(), lane.hashes(), lane.stragglers);
    });
  }

  /// True when nothing is left to do at that time.
  bool age(Tick now) {
    if (!tracker_) return true;
    bool done = false;
    if (!tracker_->may_sweep()) {
      std::this_thread::yield();  // to a worker that keeps what drains from use
    } else {
      [[maybe_unused]] const auto guard = tracker_->writing();
      done = tracker_->sweep(now, kSweepBudget, expired());
    }
    tracker_->settle();
    return done;
  }

  void find(Burst& burst) {
    if (is_empty(burst)) return;
    if (!tracker_) {
      for_each_side(
          burst, [](Side, Lane<K>& lane) { std::ranges::fill(lane.connections(), ConnId::none); });
      return;
    }
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [&](Side side, Lane<K>& lane) {
      tracker_->find(side, lane.keys(), lane.hashes(), burst.now, lane.connections(),
                     lane.stragglers);
    });
  }

  /// Gives entries to the connections that begin in this burst.
  void open(Burst& burst) {
    Lane<K>& lane = burst.lanes<K>().originator;
    if (tracker_) end_what_begins_anew(burst, lane);
    if (std::ranges::count(lane.connections(), ConnId::none) == 0) return;
    if (!tracker_) {
      refuse_all(burst, lane);
      return;
    }
    std::uint64_t unknown = 0;  // a bit a packet
    for (unsigned i = 0; i < lane.size; ++i)
      unknown |= std::uint64_t{lane.connection[i] == ConnId::none} << i;
    [[maybe_unused]] const auto guard = tracker_->writing();
    detail::Backoff others;
    const std::uint64_t before = counters_->opened.value();
    while (unknown = open(burst, lane, unknown), unknown != 0) others.wait();
    const bool opened = counters_->opened.value() != before;
    settle_unopened(burst, lane, opened || Guarding::kShared);
    if (opened) watch_level();
    find_early_replies(burst);
  }

  /// Gives entries to connections that have been served without one, and that replies prove.
  void open_by_replies(Burst& burst) {
    if (!tracker_) return;
    auto& [originator, reply] = burst.lanes<K>();
    bool opened = false;
    for (unsigned i = 0; i < reply.size; ++i) {
      if (reply.connection[i] != ConnId::none) continue;
      reply.connection[i] = open_by_reply(burst, reply, i);
      opened = opened || reply.connection[i] != ConnId::none;
    }
    if (!opened) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    find_again(originator, burst.now);
  }

  /// Between two bursts of both: opens here the connections that an entry of the indirection table
  /// sends to `from`, a family over other tables. False: they find no place, or there would be more
  /// than `most`; none of them is here then.
  bool adopt(const Family& from, unsigned entry, std::size_t most);
  /// Lets the connections of an entry go that another family has adopted. Their sources have as
  /// many as before.
  void release(unsigned entry);

  /// Leads the connections of this burst's packets from state to state, in the packets' order.
  void follow(Burst& burst) {
    if (!tracker_) return;
    auto& [originator, reply] = burst.lanes<K>();
    for (unsigned i = 0, j = 0; i < originator.size || j < reply.size;) {
      const bool is_reply =
          i == originator.size || (j < reply.size && reply.packet[j] < originator.packet[i]);
      if (is_reply) {
        follow(burst, Side::reply, reply, j++);
      } else {
        follow(burst, Side::originator, originator, i++);
      }
    }
  }

  void process(Burst& burst) {
    if (tracker_) {
      function_->process(burst, tracker_->states(Side::originator), tracker_->states(Side::reply));
      tracker_->settle();
    } else {
      function_->process(burst, States<K>(nothing_), States<K>(nothing_));
    }
  }

 private:
  static constexpr unsigned kSweepBudget = 64;

  Family(std::optional<TrackerType> tracker, const LineConfig& config, std::size_t capacity,
         FunctionFor<K>& function, WorkerCounters& counters)
      : tracker_(std::move(tracker)),
        capacity_(capacity),
        sources_(config.sources),
        function_(&function),
        counters_(&counters) {}

  static TrackerConfig tracker_config(const LineConfig& config, std::size_t capacity,
                                      MakeAgeing& ageing, const FunctionFor<K>& function) {
    const auto bytes = function.state_bytes();
    TrackerConfig tracker{
        .capacity = capacity,
        .state_bytes = bytes.originator,
        .follows = true,
        .timeouts = config.timeouts,
        .ageing = &ageing,
        .interval_ms = config.interval_ms,
        .groups = Guarding::kShared ? 0 : config.entries_that_move,
        .half_open = config.half_open_percent == 100
                         ? std::size_t{INT64_MAX}
                         : std::max<std::size_t>(capacity * config.half_open_percent / 100, 1),
        .evicts = config.evicts,
        .pages = config.pages,
        .secret = config.secret};
    if (bytes.replies) tracker.reply_state_bytes = bytes.reply;
    return tracker;
  }

  static bool is_empty(Burst& burst) {
    const auto& lanes = burst.lanes<K>();
    return lanes.originator.size == 0 && lanes.reply.size == 0;
  }

  template <class Each>
  static void for_each_side(Burst& burst, Each&& each) {
    auto& lanes = burst.lanes<K>();
    each(Side::originator, lanes.originator);
    each(Side::reply, lanes.reply);
  }

  /// What the tracker tells of connections that have expired.
  auto expired() {
    return [this](ConnId id) { closed(id, ending(tracker_->state_of(Side::originator, id))); };
  }
  /// And of those that give way, which may have expired.
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
    function_->closed(state_of(id), holds(proof));
  }
  const std::byte* state_of(ConnId id) const { return tracker_->states(Side::originator)[id]; }

  /// What the tracker asks before a packet proves a connection.
  struct Limits {
    Family& family;
    Verdict reached = Verdict::tracked;

    Proof take(ConnId id) { return family.take_for(id, reached); }
    void give_back(ConnId id, Proof proof) {
      family.give_back_source(id, proof);
      family.function_->unproved(family.state_of(id));
    }
  };
  Proof take_for(ConnId id, Verdict& reached);
  void give_back_source(ConnId id, Proof proof);
  bool source_has_room(const K& key) const {
    return sources_ == nullptr || sources_->has_room(sources_->source_of(key));
  }

  /// How a connection ends that is idle in that state.
  static Ending ending(ConnectionState state) {
    if (state == ConnectionState::closed) return Ending::reset;
    const bool both_fins =
        state == ConnectionState::last_ack || state == ConnectionState::time_wait;
    return both_fins ? Ending::finished : Ending::timed_out;
  }

  void follow(Burst& burst, Side side, Lane<K>& lane, unsigned i);

  /// Ends connections whose ends begin another one, so that `open` does so here.
  void end_what_begins_anew(Burst& burst, Lane<K>& lane) {
    for (unsigned i = 0; i < lane.size; ++i) {
      const ConnId id = lane.connection[i];
      if (id == ConnId::none || burst.signal[lane.packet[i]] != Signal::syn) continue;
      // Who did not open it cannot end it: there it begins anew in its place, with its backend.
      if (!tracker_->begins_anew(id) || !tracker_->is_mine(id)) continue;
      const ConnId reply = tracker_->originators().header(id).peer;
      [[maybe_unused]] const auto guard = tracker_->writing();
      tracker_->close(id, [this](ConnId ended) { closed(ended, Ending::reopened); });
      forget(lane, id);
      if (reply != ConnId::none) forget(burst.lanes<K>().reply, reply);
    }
  }
  static void forget(Lane<K>& lane, ConnId id) {
    std::ranges::replace(lane.connections(), id, ConnId::none);
  }

  /// What nobody tracks finds no place.
  static void refuse_all(Burst& burst, const Lane<K>& lane) {
    for (unsigned i = 0; i < lane.size; ++i) burst.verdict[lane.packet[i]] = Verdict::table_full;
  }

  /// Opens the connections of those packets of the lane, a bit each. Returns those whose
  /// connections other workers are opening: they are to be tried again.
  std::uint64_t open(Burst& burst, Lane<K>& lane, std::uint64_t unknown) {
    unsigned count = 0;
    for (std::uint64_t left = unknown; left != 0; left &= left - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(left));
      count += admit(burst, lane, i, openings_[count]);
    }
    for (auto pending = std::span(openings_).first(count); !pending.empty();) {
      function_->open(burst, pending);
      pending = pending.first(settle(burst, lane, pending));
    }
    if constexpr (!Guarding::kConcurrent) return 0;
    std::uint64_t again = 0;
    for (std::uint64_t left = unknown; left != 0; left &= left - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(left));
      ConnId& id = lane.connection[i];
      if (id == ConnId::none || tracker_->is_confirmed(id)) continue;
      id = ConnId::none;
      again |= std::uint64_t{1} << i;
    }
    return again;
  }

  /// Whether a packet may begin a connection, or be one's in mid-connection.
  bool begins(Signal signal) const {
    const Direction from = tracker_->has_replies() ? Direction::originator : Direction::only;
    return millrace::begins(signal, from);
  }

  /// Opens the connection of the lane's packet `i`; true when the function has to be asked.
  bool admit(Burst& burst, Lane<K>& lane, unsigned i, Opening<K>& opening) {
    if (!begins(burst.signal[lane.packet[i]])) {
      burst.verdict[lane.packet[i]] = Verdict::no_connection;
      return false;
    }
    if (!source_has_room(lane.key[i])) {
      burst.verdict[lane.packet[i]] = Verdict::source_limit;
      return false;
    }
    burst.verdict[lane.packet[i]] = Verdict::table_full;
    using Room = typename TrackerType::Room;
    if (const Room room = tracker_->room(); room != Room::there_is) {
      if (room == Room::over_budget) burst.verdict[lane.packet[i]] = Verdict::over_budget;
      return false;
    }
    const Insertion in = tracker_->open(lane.key[i], lane.hash[i], burst.now, gives_way(burst.now));
    if (in.outcome == Insertion::Outcome::full) counters_->refused_early.add(1);
    lane.connection[i] = in.id;
    if (in.outcome != Insertion::Outcome::inserted) return false;
    opening.packet = lane.packet[i];
    opening.attempt = 0;
    opening.by_reply = false;
    opening.connection = in.id;
    opening.key = lane.key[i];
    opening.state = tracker_->states(Side::originator)[in.id];
    return true;
  }

  /// Acts on the function's answers. Openings whose reply collided move to the front; returns how
  /// many.
  unsigned settle(Burst& burst, Lane<K>& lane, std::span<Opening<K>> openings) {
    unsigned again = 0;
    for (Opening<K>& opening : openings) {
      if (opening.answer == Opening<K>::Answer::refused) {
        if (opening.attempt > 0) function_->abandoned(opening.state);
        give_up(burst, lane, opening, opening.refusal);
        continue;
      }
      const Insertion linked = link(burst, opening);
      if (linked.outcome == Insertion::Outcome::inserted) {
        tracker_->confirm(opening.connection, linked.id, burst.entry[opening.packet]);
        counters_->opened.add(1);
      } else if (linked.outcome == Insertion::Outcome::full) {
        function_->abandoned(opening.state);
        give_up(burst, lane, opening, Verdict::table_full);
      } else {
        counters_->collisions.add(1);
        ++opening.attempt;
        std::swap(openings[again++], opening);
      }
    }
    return again;
  }

  Insertion link(const Burst& burst, const Opening<K>& opening) {
    if (opening.answer == Opening<K>::Answer::one_way)
      return {ConnId::none, Insertion::Outcome::inserted, ConnId::none};
    return tracker_->link(opening.reply_key, burst.now,
                          std::span(opening.reply_state).first(function_->state_bytes().reply),
                          gives_way(burst.now), opening.by_reply);
  }

  ConnId open_by_reply(Burst& burst, Lane<K>& lane, unsigned i);
  /// The reply's entry of a connection, if that is its key.
  ConnId reply_of(ConnId id, const K& key) const {
    // Read once: another worker may be ending it.
    const ConnId reply = peer_of(tracker_->originators().header(id));
    const bool is_it = reply != ConnId::none && reply != kUnconfirmed &&
                       tracker_->replies().header(reply).key == key;
    return is_it ? reply : ConnId::none;
  }

  void watch_level();

  void settle_unopened(Burst& burst, Lane<K>& lane, bool look);

  /// Packets without a connection may belong to one that has been opened since.
  void find_again(Lane<K>& lane, Tick now) {
    for (unsigned i = 0; i < lane.size; ++i) {
      if (lane.connection[i] == ConnId::none) find_again(lane, i, now);
    }
  }
  void find_again(Lane<K>& lane, unsigned i, Tick now) {
    tracker_->find(Side::originator, lane.keys().subspan(i, 1), lane.hashes().subspan(i, 1), now,
                   lane.connections().subspan(i, 1));
  }

  /// A reply may stand in the very burst that opened its connection.
  void find_early_replies(Burst& burst) {
    Lane<K>& reply = burst.lanes<K>().reply;
    if (std::ranges::find(reply.connections(), ConnId::none) == reply.connections().end()) return;
    tracker_->find(Side::reply, reply.keys(), reply.hashes(), burst.now, reply.connections());
  }

  /// Takes an opening back; all packets of the burst that were to belong to it get its verdict.
  void give_up(Burst& burst, Lane<K>& lane, const Opening<K>& opening, Verdict why) {
    tracker_->abandon(opening.connection);
    if (why != Verdict::table_full && !is_limit(why)) counters_->refused.add(1);
    for (unsigned i = 0; i < lane.size; ++i) {
      if (lane.connection[i] != opening.connection) continue;
      lane.connection[i] = ConnId::none;
      burst.verdict[lane.packet[i]] = why;
    }
  }

  std::optional<TrackerType> tracker_;
  std::size_t capacity_;
  std::shared_ptr<SourceCounts> sources_;  // none: they have no limit
  FunctionFor<K>* function_;
  WorkerCounters* counters_;
  unsigned level_ = 0;  // watermarks below what the tables hold
  std::array<Opening<K>, kBurstMax> openings_;
  Records<K> nothing_;
};

}  // namespace millrace

#include "worker/family_following.h"
#include "worker/family_opening.h"
