// The part of a family by which connections get entries although they had none: because a reply
// proves them, or another worker or packet was first.
#pragma once

#include <cstdint>

#include "worker/family.h"

namespace millrace {

/// Gives an entry to the connection that the lane's packet `i`, a reply, proves; none where it
/// does not, or there is no place.
template <class TrackerType, class K>
ConnId Family<TrackerType, K>::open_by_reply(Burst& burst, Lane<K>& lane, unsigned i) {
  Opening<K>& opening = openings_.front();
  const unsigned packet = lane.packet[i];
  if (!millrace::begins(burst.signal[packet], Direction::reply)) return ConnId::none;
  Verdict verdict = function_->answers(burst, packet, lane.key[i], opening.key);
  if (verdict == Verdict::tracked && !source_has_room(opening.key)) verdict = Verdict::source_limit;
  if (is_limit(verdict)) burst.verdict[packet] = verdict;
  if (verdict != Verdict::tracked) return ConnId::none;
  [[maybe_unused]] const auto guard = tracker_->writing();
  const Insertion in = tracker_->open(opening.key, tracker_->hasher()(opening.key), burst.now,
                                      gives_way(burst.now), true);
  if (in.outcome == Insertion::Outcome::full) return ConnId::none;
  if (in.outcome == Insertion::Outcome::present) return reply_of(in.id, lane.key[i]);
  opening.packet = static_cast<std::uint8_t>(packet);
  opening.attempt = 0;
  opening.by_reply = true;
  opening.connection = in.id;
  opening.state = tracker_->states(Side::originator)[in.id];
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
