// The part of a family by which connections get entries: those that begin, and those that were
// served without one until a reply proves them.
#pragma once

#include <algorithm>
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
void Family<TrackerType, K>::open(Burst& burst) {
  Lane<K>& lane = burst.lanes<K>().originator;
  if (tracker_) end_what_begins_anew(burst, lane);
  if (std::ranges::count(lane.connections(), ConnId::none) == 0) return;
  if (!tracker_) {
    for (unsigned i = 0; i < lane.size; ++i) burst.verdict[lane.packet[i]] = Verdict::table_full;
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

/// Ends connections whose ends begin another one, so that `open` does so here.
template <class TrackerType, class K>
void Family<TrackerType, K>::end_what_begins_anew(Burst& burst, Lane<K>& lane) {
  for (unsigned i = 0; i < lane.size; ++i) {
    const ConnId id = lane.connection[i];
    if (id == ConnId::none || burst.signal[lane.packet[i]] != Signal::syn) continue;
    // Who did not open it cannot end it: there it begins anew in its place, with its backend.
    if (!tracker_->begins_anew(id) || !tracker_->is_mine(id)) continue;
    const ConnId reply = tracker_->originators().header(id).peer;
    [[maybe_unused]] const auto guard = tracker_->writing();
    tracker_->close(id, [this](ConnId ended) { closed(ended, Ending::reopened); });
    std::ranges::replace(lane.connections(), id, ConnId::none);
    if (reply != ConnId::none)
      std::ranges::replace(burst.lanes<K>().reply.connections(), reply, ConnId::none);
  }
}

/// Opens the connections of those packets of the lane, a bit each. Returns those whose
/// connections other workers are opening: they are to be tried again.
template <class TrackerType, class K>
std::uint64_t Family<TrackerType, K>::open(Burst& burst, Lane<K>& lane, std::uint64_t unknown) {
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

/// Opens the connection of the lane's packet `i`; true when the function has to be asked.
template <class TrackerType, class K>
bool Family<TrackerType, K>::admit(Burst& burst, Lane<K>& lane, unsigned i, Opening<K>& opening) {
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
  if (in.outcome == Insertion::Outcome::full && tracker_->fill_percent() < 100)
    counters_->refused_early.add(1);
  lane.connection[i] = in.id;
  if (in.outcome != Insertion::Outcome::inserted) return false;
  opening.key = lane.key[i];
  prepare(opening, lane.packet[i], in.id, false);
  return true;
}

/// An opening whose key is there, to be answered.
template <class TrackerType, class K>
void Family<TrackerType, K>::prepare(Opening<K>& opening, std::uint8_t packet, ConnId id,
                                     bool by_reply) const {
  opening.packet = packet;
  opening.attempt = 0;
  opening.by_reply = by_reply;
  opening.connection = id;
  opening.state = tracker_->states(Side::originator)[id];
}

/// Acts on the function's answers. Openings whose reply collided move to the front; returns how
/// many.
template <class TrackerType, class K>
unsigned Family<TrackerType, K>::settle(Burst& burst, Lane<K>& lane,
                                        std::span<Opening<K>> openings) {
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

template <class TrackerType, class K>
Insertion Family<TrackerType, K>::link(const Burst& burst, const Opening<K>& opening) {
  if (opening.answer == Opening<K>::Answer::one_way)
    return {ConnId::none, Insertion::Outcome::inserted, ConnId::none};
  return tracker_->link(opening.reply_key, burst.now,
                        std::span(opening.reply_state).first(function_->state_bytes().reply),
                        gives_way(burst.now),
                        opening.by_reply ? Newcomer::proved : Newcomer::unproved);
}

/// Takes an opening back; all packets of the burst that were to belong to it get its verdict.
template <class TrackerType, class K>
void Family<TrackerType, K>::give_up(Burst& burst, Lane<K>& lane, const Opening<K>& opening,
                                     Verdict why) {
  tracker_->abandon(opening.connection);
  const bool is_counted = why != Verdict::table_full && why != Verdict::passed && !is_limit(why);
  if (is_counted) counters_->refused.add(1);
  for (unsigned i = 0; i < lane.size; ++i) {
    if (lane.connection[i] != opening.connection) continue;
    lane.connection[i] = ConnId::none;
    burst.verdict[lane.packet[i]] = why;
  }
}

/// A reply may stand in the very burst that opened its connection.
template <class TrackerType, class K>
void Family<TrackerType, K>::find_early_replies(Burst& burst) {
  Lane<K>& reply = burst.lanes<K>().reply;
  if (std::ranges::find(reply.connections(), ConnId::none) == reply.connections().end()) return;
  tracker_->find(Side::reply, reply.keys(), reply.hashes(), burst.now, reply.connections());
}

/// Each is followed at once, so that its limits know of it before the next one displaces anybody;
/// when the burst is followed it changes nothing once more.
template <class TrackerType, class K>
void Family<TrackerType, K>::open_by_replies(Burst& burst) {
  if (!tracker_) return;
  auto& [originator, reply] = burst.lanes<K>();
  bool opened = false;
  for (unsigned i = 0; i < reply.size; ++i) {
    if (reply.connection[i] != ConnId::none) continue;
    reply.connection[i] = open_by_reply(burst, reply, i);
    if (reply.connection[i] == ConnId::none) continue;
    opened = true;
    follow(burst, Side::reply, reply, i);
  }
  if (!opened) return;
  [[maybe_unused]] const auto guard = tracker_->reading();
  find_again(originator, burst.now);
}

/// Whether who sends this, a reply, has a connection: of TCP what it sends by itself tells, for
/// anybody can make it acknowledge what it does not take (RFC 9293, 3.10.7.4).
template <class TrackerType, class K>
bool Family<TrackerType, K>::shows_a_connection(const Burst& burst, unsigned packet) {
  const Signal signal = burst.signal[packet];
  if (!millrace::begins(signal, Direction::reply)) return false;
  return !is_tcp(signal) || read_segment(burst.data[packet], burst.headers[packet]).length() > 0;
}

/// Gives an entry to the connection that the lane's packet `i`, a reply, proves; none where it
/// does not, or there is no place.
template <class TrackerType, class K>
ConnId Family<TrackerType, K>::open_by_reply(Burst& burst, Lane<K>& lane, unsigned i) {
  Opening<K>& opening = openings_.front();
  const unsigned packet = lane.packet[i];
  if (!shows_a_connection(burst, packet)) return ConnId::none;
  Verdict verdict = function_->answers(burst, packet, lane.key[i], opening.key);
  if (verdict == Verdict::tracked && !source_has_room(opening.key)) verdict = Verdict::source_limit;
  if (is_limit(verdict)) burst.verdict[packet] = verdict;
  if (verdict != Verdict::tracked) return ConnId::none;
  [[maybe_unused]] const auto guard = tracker_->writing();
  const Insertion in = tracker_->open(opening.key, tracker_->hasher()(opening.key), burst.now,
                                      gives_way(burst.now), Newcomer::proved);
  if (in.outcome == Insertion::Outcome::full) return ConnId::none;
  if (in.outcome == Insertion::Outcome::present) return reply_of(in.id, lane.key[i]);
  prepare(opening, lane.packet[i], in.id, true);
  function_->open(burst, {&opening, 1});
  const bool is_accepted = opening.answer != Opening<K>::Answer::refused;
  if (opening.answer == Opening<K>::Answer::two_way && opening.reply_key == lane.key[i]) {
    const Insertion linked = link(burst, opening);
    if (linked.outcome == Insertion::Outcome::inserted) {
      tracker_->confirm(in.id, linked.id, burst.entry[packet]);
      counters_->opened.add(1);
      watch_level();
      return linked.id;
    }
  }
  if (is_accepted) function_->abandoned(opening.state);
  tracker_->abandon(in.id);
  return ConnId::none;
}

/// Counts how often the tables fill over their marks; a mark counts again once a twentieth of the
/// capacity below it was free.
template <class TrackerType, class K>
void Family<TrackerType, K>::watch_level() {
  const unsigned percent = tracker_->fill_percent();
  while (level_ < kWatermarks && percent >= kWatermarkPercent[level_])
    counters_->over_watermark[level_++].add(1);
  while (level_ > 0 && percent + 5 < kWatermarkPercent[level_ - 1]) --level_;
}

/// Counts what found no place. First it is looked for once more where somebody has opened
/// connections since: it may belong to one of them.
template <class TrackerType, class K>
void Family<TrackerType, K>::settle_unopened(Burst& burst, Lane<K>& lane, bool look) {
  for (unsigned i = 0; i < lane.size; ++i) {
    if (lane.connection[i] != ConnId::none) continue;
    const Verdict verdict = burst.verdict[lane.packet[i]];
    if (look) {
      find_again(lane, i, burst.now);
      if (lane.connection[i] != ConnId::none) continue;
    }
    if (verdict == Verdict::table_full) counters_->refused.add(1);
    if (verdict == Verdict::over_budget) counters_->over_budget.add(1);
  }
}

}  // namespace millrace
