// Following: packets advance their connections' states, within limits. A part of family.h.
#pragma once

#include <cassert>

#include "line/family.h"

namespace millrace {

/// Follows the connection of the lane's packet `i`, which may change the connection. A packet that
/// a limit forbids is dropped, and leaves the connection as it was.
template <class TrackerType, class K>
void Family<TrackerType, K>::lead(Burst& burst, Lane<K>& lane, unsigned i) {
  const ConnId id = lane.connection[i];
  const unsigned packet = lane.packet[i];
  Segment segment;
  if (is_tcp(burst.signal[packet]) && tracker_->has_replies())
    segment = read_segment(burst.data[packet], burst.headers[packet]);
  using Followed = typename TrackerType::Followed;
  Limits limits{*this};
  const Followed followed =
      tracker_->follow(lane.side(i), id, burst.signal[packet], segment, burst.now, limits);
  if (followed == Followed::passed) [[likely]]
    return;
  if (followed == Followed::reset_ignored) return counters_->resets_ignored.add(1);
  burst.verdict[packet] = limits.reached;
  lane.connection[i] = ConnId::none;
}

/// Counts a connection as proved for the limits of its source and of its service. Returns the
/// limits for which it counts. If a limit forbids the connection, returns `Proof::none`, and sets
/// `reached` to that limit's verdict.
template <class TrackerType, class K>
Proof Family<TrackerType, K>::take_for(ConnId id, Verdict& reached) {
  Proof proof = Proof::service;
  if (sources_ != nullptr) {
    const auto taken = sources_->take(sources_->source_of(tracker_->key_of(id)));
    if (taken == SourceCounts::Taken::full) {
      reached = Verdict::source_limit;
      return Proof::none;
    }
    if (taken == SourceCounts::Taken::counted) proof = Proof::service_and_source;
    if (taken == SourceCounts::Taken::uncounted) counters_->uncounted.add(1);
  }
  const Verdict verdict = function_->event(Event::proved, state_of(id), false);
  if (verdict == Verdict::tracked) return proof;
  reached = verdict;
  give_back_source(id, proof);
  return Proof::none;
}

template <class TrackerType, class K>
void Family<TrackerType, K>::give_back_source(ConnId id, Proof proof) {
  if (proof != Proof::service_and_source) return;
  [[maybe_unused]] const bool had = sources_->give_back(sources_->source_of(tracker_->key_of(id)));
  assert(had);
}

}  // namespace millrace
