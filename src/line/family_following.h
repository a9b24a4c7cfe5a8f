// Following: packets advance their connections' states, within limits. A part of family.h.
#pragma once

#include <cassert>

#include "line/family.h"
#include "parse/sctp.h"

namespace millrace {

template <class TrackerType, class K>
inline bool Family<TrackerType, K>::follow_alone(const Burst& burst, const Lane<K>& lane,
                                                 unsigned i) const {
  const unsigned packet = lane.packet[i];
  const Segment ack = read_segment(burst.data[packet], burst.headers[packet]);
  return tracker_->follow_alone(lane.side(i), lane.connection[i], ack);
}

/// Follows the connection of the lane's packet `i`, which may change the connection. A packet that
/// a limit forbids is dropped, and leaves the connection as it was.
template <class TrackerType, class K>
void Family<TrackerType, K>::lead(Burst& burst, Lane<K>& lane, unsigned i) {
  const ConnId id = lane.connection[i];
  const unsigned packet = lane.packet[i];
  const Signal signal = burst.signal[packet];
  using Followed = typename TrackerType::Followed;
  Limits limits{*this};
  Followed followed{};
  const ConnectionState before = tracker_->state_of(lane.side(i), id);
  if (is_sctp(signal)) [[unlikely]] {
    const Tags tags = read_tags(burst.data[packet], burst.headers[packet]);
    followed = tracker_->follow(lane.side(i), id, signal, tags, burst.now, limits);
  } else {
    const Segment segment = is_tcp(signal) && tracker_->has_replies()
                                ? read_segment(burst.data[packet], burst.headers[packet])
                                : Segment{};
    followed = tracker_->follow(lane.side(i), id, signal, segment, burst.now, limits);
  }
  if (followed == Followed::passed) [[likely]] {
    const bool is_other = tracker_->state_of(lane.side(i), id) != before;
    lane.advanced |= std::uint64_t{is_other} << i;
    if (is_other && !copied_.empty())
      note_change(lane.side(i) == Side::originator ? id
                                                   : peer_of(tracker_->originators().header(id)));
    return;
  }
  if (followed == Followed::invalid) return refuse(burst, lane, i);
  if (followed == Followed::reset_ignored) return counters_->resets_ignored.add(1);
  burst.verdict[packet] = limits.reached;
  lane.connection[i] = ConnId::none;
}

/// Drops the lane's packet `i`, which cannot be of its connection. If all packets of the burst with
/// its entry are such ones, the entry's idle time goes on.
template <class TrackerType, class K>
void Family<TrackerType, K>::refuse(Burst& burst, Lane<K>& lane, unsigned i) {
  burst.verdict[lane.packet[i]] = Verdict::invalid;
  const ConnId id = std::exchange(lane.connection[i], ConnId::none);
  const auto others = lane.connections();
  const auto other = std::ranges::find(others, id);
  if (other == others.end())
    return see_instead(tracker_->originators().header(id), burst.now, lane.seen[i]);
  const auto at = static_cast<unsigned>(other - others.begin());
  if (at > i) lane.seen[at] = lane.seen[i];
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
  const Verdict verdict =
      function_->event(Event::proved, tracker_->key_of(id), state_of(id), false);
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
