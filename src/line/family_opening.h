// Opening: gives entries to connections that begin, and to connections that were served without an
// entry until a reply proves them. A part of family.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "line/family.h"
#include "millrace/detail/waiting.h"
#include "parse/tcp.h"

namespace millrace {

template <class TrackerType, class K>
void Family<TrackerType, K>::open(Burst& burst, std::uint64_t refused) {
  Lane<K>& lane = burst.lane<K>();
  if (tracker_) end_what_begins_anew(burst, lane);
  if (!has_unknown(burst)) return;
  std::uint64_t concerned = tracker_ ? unknown(lane) : lane.all();
  if (refused != 0) [[unlikely]] {
    for_each_bit(concerned, [&](unsigned i) {
      if ((refused >> lane.packet[i] & 1) != 0) concerned &= ~(std::uint64_t{1} << i);
    });
  }
  lane.changed.fill(0);
  const std::uint64_t begin = function_->screen(burst, lane, concerned);
  if (!tracker_) {
    for_each_bit(begin, [&](unsigned i) { burst.verdict[lane.packet[i]] = Verdict::table_full; });
    return;
  }
  [[maybe_unused]] const auto guard = tracker_->writing();
  prefetch_likely_replies(lane, begin);
  const std::uint64_t before = counters_->opened.value();
  for_each_bit(begin, [&](unsigned i) { admit(burst, lane, i); });
  const bool opened = counters_->opened.value() != before;
  decide_unopened(burst, lane, opened || Guarding::kShared);
  if (opened) watch_level();
}

/// Prefetches the places of replies' entries, where the function foresees how packets will leave:
/// else `link` waits for memory, one connection after the other.
template <class TrackerType, class K>
void Family<TrackerType, K>::prefetch_likely_replies(const Lane<K>& lane,
                                                     std::uint64_t begin) const {
  std::array<K, kBurstMax> keys;
  std::array<Hash, kBurstMax> hashes;
  std::size_t count = 0;
  for_each_bit(begin, [&](unsigned i) {
    if (lane.changed[i] != 0) keys[count++] = reversed(lane.leaving(i));
  });
  if (count == 0) return;
  const std::span<const K> replies = std::span(keys).first(count);
  tracker_->hasher()(replies, std::span(hashes));
  const auto& table = tracker_->table_of(Side::reply);
  table.prefetch(std::span(hashes).first(count));
  prefetch_to_open(table, replies, std::span<const Hash>(hashes).first(count));
}

/// Ends each connection that a SYN or INIT of this burst replaces by a new one, so that `open`
/// opens the new one.
template <class TrackerType, class K>
void Family<TrackerType, K>::end_what_begins_anew(Burst& burst, Lane<K>& lane) {
  for (unsigned i = 0; i < lane.size; ++i) {
    const ConnId id = lane.connection[i];
    const Signal signal = burst.signal[lane.packet[i]];
    if (id == ConnId::none || !begins_handshake(signal)) continue;
    if (lane.side(i) == Side::reply) continue;
    // Only the worker that opened a connection may end it. On another worker the entry stays, and
    // the new connection uses that entry and its backend.
    if (!tracker_->begins_anew(id, signal) || !tracker_->is_mine(id)) continue;
    const ConnId reply = tracker_->originators().header(id).peer;
    [[maybe_unused]] const auto guard = tracker_->writing();
    tracker_->close(id, [this](ConnId ended) { closed(ended, Ending::reopened); });
    for (unsigned n = 0; n < lane.size; ++n) {
      ConnId& met = lane.connection[n];
      if (met == ConnId::none || (met != id && met != reply)) continue;
      met = ConnId::none;
      lane.replies &= ~(std::uint64_t{1} << n);
    }
  }
}

/// Opens the connection of the lane's packet `i`, or finds it if it has been opened by now; else
/// gives the packet a verdict that says why not.
template <class TrackerType, class K>
void Family<TrackerType, K>::admit(Burst& burst, Lane<K>& lane, unsigned i) {
  Verdict& verdict = burst.verdict[lane.packet[i]];
  if (!begins(burst.signal[lane.packet[i]])) {
    verdict = Verdict::no_connection;
    return;
  }
  if (!source_has_room(lane.key[i])) {
    verdict = Verdict::source_limit;
    return;
  }
  using Room = typename TrackerType::Room;
  Room room = tracker_->room();
  const auto evicted = [this](ConnId id) { closed(id, Ending::evicted); };
  if (room == Room::over_budget && replaces_half_open_ &&
      tracker_->end_half_open(burst.now, evicted))
    room = tracker_->room();
  if (room != Room::there_is) {
    verdict = room == Room::over_budget ? Verdict::over_budget : Verdict::table_full;
    return;
  }
  const Insertion in = insert(lane.key[i], lane.hash[i], burst.now, Newcomer::unproved);
  if (in.outcome == Insertion::Outcome::full) {
    if (tracker_->fill_percent() < 100) counters_->refused_early.add(1);
    verdict = Verdict::table_full;
    return;
  }
  lane.connection[i] = in.id;
  if (in.outcome == Insertion::Outcome::inserted) {
    prepare(lane.key[i], lane.packet[i], in.id, false);
    complete(burst, lane, i);
  } else if (tracker_->side_of(in.id) == Side::reply) {
    lane.replies |= std::uint64_t{1} << i;
  }
}

/// Inserts an originator's entry. If another worker is opening that connection, waits until that
/// worker has confirmed it or given it up. This worker has no unconfirmed connection meanwhile, so
/// workers do not wait for each other in a circle.
template <class TrackerType, class K>
Insertion Family<TrackerType, K>::insert(const K& key, Hash hash, Tick now, Newcomer newcomer) {
  detail::Backoff others;
  for (;;) {
    const Insertion in = tracker_->open(key, hash, now, gives_way(now), newcomer);
    const bool is_there = in.outcome == Insertion::Outcome::present;
    if (!Guarding::kConcurrent || !is_there || tracker_->is_confirmed(in.id)) return in;
    others.wait();
  }
}

/// Sets `opening_` to ask the function about the connection with this key. Its originator's entry
/// is `id`.
template <class TrackerType, class K>
void Family<TrackerType, K>::prepare(const K& key, std::uint8_t packet, ConnId id, bool by_reply) {
  opening_.key = key;
  opening_.packet = packet;
  opening_.attempt = 0;
  opening_.by_reply = by_reply;
  opening_.decision = Opening<K>::Decision::one_way;
  opening_.state = tracker_->states()[id];
  opening_.reply_state = reply_state_.data();
}

/// Asks the function until its reply key is free, and then confirms the connection; gives the
/// connection up if the function refuses or the table is full.
template <class TrackerType, class K>
void Family<TrackerType, K>::complete(Burst& burst, Lane<K>& lane, unsigned i) {
  for (;; ++opening_.attempt) {
    function_->open(burst, opening_);
    if (!opening_.is_accepted()) {
      if (opening_.attempt > 0)
        function_->event(Event::abandoned, opening_.key, opening_.state, false);
      return give_up(burst, lane, i, opening_.refusal);
    }
    const Insertion linked = link(burst);
    if (linked.outcome == Insertion::Outcome::inserted)
      return confirm(burst, lane.connection[i], linked.id);
    if (linked.outcome == Insertion::Outcome::full) {
      function_->event(Event::abandoned, opening_.key, opening_.state, false);
      return give_up(burst, lane, i, Verdict::table_full);
    }
    counters_->collisions.add(1);
  }
}

template <class TrackerType, class K>
Insertion Family<TrackerType, K>::link(const Burst& burst) {
  if (opening_.decision == Opening<K>::Decision::one_way)
    return {ConnId::none, Insertion::Outcome::inserted, ConnId::none};
  return tracker_->link(
      opening_.reply_key, burst.now, std::span(reply_state_).first(function_->part().reply_bytes),
      gives_way(burst.now), opening_.by_reply ? Newcomer::proved : Newcomer::unproved);
}

template <class TrackerType, class K>
void Family<TrackerType, K>::confirm(const Burst& burst, ConnId id, ConnId reply) {
  tracker_->confirm(id, reply, burst.shard[opening_.packet]);
  counters_->opened.add(1);
  if (!copied_.empty()) note_change(id);
}

/// Abandons the connection of the lane's packet `i`, which gets the verdict `why`.
template <class TrackerType, class K>
void Family<TrackerType, K>::give_up(Burst& burst, Lane<K>& lane, unsigned i, Verdict why) {
  tracker_->abandon(lane.connection[i]);
  const bool is_counted = is_drop(why) && why != Verdict::table_full && !is_limit(why);
  if (is_counted) counters_->refused.add(1);
  lane.connection[i] = ConnId::none;
  burst.verdict[lane.packet[i]] = why;
}

/// Follows each connection as soon as it is open: then the limits count it before they are asked
/// about the next connection, whose opening may evict another one. When the whole burst is followed
/// later, the replies that opened connections change nothing.
template <class TrackerType, class K>
void Family<TrackerType, K>::open_by_replies(Burst& burst) {
  Lane<K>& lane = burst.lane<K>();
  if (!tracker_ || (lane.replies & lane.all()) == 0) return;
  bool opened = false;
  for_each_bit(lane.replies & lane.all() & unknown(lane), [&](unsigned i) {
    if (opened) {
      [[maybe_unused]] const auto guard = tracker_->reading();
      if (find_again(lane, i, burst.now)) return;
    }
    lane.connection[i] = open_by_reply(burst, lane, i);
    if (lane.connection[i] == ConnId::none) return;
    opened = true;
    follow(burst, lane, i);
  });
  if (!opened) return;
  [[maybe_unused]] const auto guard = tracker_->reading();
  for_each_bit(unknown(lane), [&](unsigned i) { find_again(lane, i, burst.now); });
}

/// True if this packet, a reply, proves that its sender has a connection. For TCP only data and a
/// FIN count: anyone can provoke a bare ACK with an unacceptable segment (RFC 9293, 3.10.7.4).
template <class TrackerType, class K>
bool Family<TrackerType, K>::shows_a_connection(const Burst& burst, unsigned packet) {
  const Signal signal = burst.signal[packet];
  if (!millrace::begins(signal, Direction::reply)) return false;
  return !is_tcp(signal) || read_segment(burst.data[packet], burst.headers[packet]).length() > 0;
}

/// Gives entries to the connection that the lane's packet `i`, a reply, proves. Returns the reply's
/// entry; none if the packet proves nothing, the function does not recognise it, a limit forbids
/// the connection or there is no place.
template <class TrackerType, class K>
ConnId Family<TrackerType, K>::open_by_reply(Burst& burst, Lane<K>& lane, unsigned i) {
  const unsigned packet = lane.packet[i];
  if (!shows_a_connection(burst, packet)) return ConnId::none;
  K key;
  Verdict verdict = function_->recognise_reply(burst, packet, lane.key[i], key);
  if (verdict == Verdict::tracked && !source_has_room(key)) verdict = Verdict::source_limit;
  if (is_limit(verdict)) burst.verdict[packet] = verdict;
  if (verdict != Verdict::tracked) return ConnId::none;
  [[maybe_unused]] const auto guard = tracker_->writing();
  const Insertion in = insert(key, tracker_->hasher()(key), burst.now, Newcomer::proved);
  if (in.outcome == Insertion::Outcome::full) return ConnId::none;
  if (in.outcome == Insertion::Outcome::present) return reply_of(in.id, lane.key[i]);
  prepare(key, lane.packet[i], in.id, true);
  function_->open(burst, opening_);
  if (opening_.decision == Opening<K>::Decision::two_way && opening_.reply_key == lane.key[i]) {
    const Insertion linked = link(burst);
    if (linked.outcome == Insertion::Outcome::inserted) {
      confirm(burst, in.id, linked.id);
      watch_level();
      return linked.id;
    }
  }
  if (opening_.is_accepted())
    function_->event(Event::abandoned, opening_.key, opening_.state, false);
  tracker_->abandon(in.id);
  return ConnId::none;
}

/// Counts how often the tables fill to a watermark. A watermark counts again only after the tables'
/// fill has been below it by more than 5 % of the capacity.
template <class TrackerType, class K>
void Family<TrackerType, K>::watch_level() {
  const unsigned percent = tracker_->fill_percent();
  while (level_ < kWatermarks && percent >= kWatermarkPercent[level_])
    counters_->over_watermark[level_++].add(1);
  while (level_ > 0 && percent + 5 < kWatermarkPercent[level_ - 1]) --level_;
}

/// Counts the packets that got no entry because the table is full or too many connections are half
/// open. With `looks_again`, each packet without a connection is looked up again first: its
/// connection may have been opened since.
template <class TrackerType, class K>
void Family<TrackerType, K>::decide_unopened(Burst& burst, Lane<K>& lane, bool looks_again) {
  for (unsigned i = 0; i < lane.size; ++i) {
    if (lane.connection[i] != ConnId::none) continue;
    Verdict& verdict = burst.verdict[lane.packet[i]];
    if (looks_again && find_again(lane, i, burst.now)) {
      verdict = Verdict::tracked;
      continue;
    }
    if (verdict == Verdict::table_full) counters_->refused.add(1);
    if (verdict == Verdict::over_budget) counters_->over_budget.add(1);
  }
}

}  // namespace millrace
