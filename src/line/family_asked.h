// Requests of other threads to a line: to list its connections, and to end some. A part of
// family.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "line/family.h"

namespace millrace {

/// Calls `decide(id)` for some connections of this worker, from the id `from` on, and ends those
/// for which `decide` says so. Returns the id to go on with, none at the end.
template <class TrackerType, class K>
template <class Decide>
std::optional<std::size_t> Family<TrackerType, K>::for_each_from(std::size_t from, Ending why,
                                                                 Port* port, Decide&& decide) {
  if (!tracker_ || from >= tracker_->ids()) return std::nullopt;
  // Connections to end: at most `kEndMost`, as their ids wait until they are reusable.
  std::array<ConnId, Line::kEndMost> ending;
  std::size_t count = 0;
  const std::size_t end = std::min(from + Line::kMostAtOnce, tracker_->ids());
  std::size_t at = from;
  {
    [[maybe_unused]] const auto guard = tracker_->reading();
    for (; at < end && count < ending.size(); ++at) {
      const ConnId id{static_cast<std::uint32_t>(at)};
      if (!tracker_->is_live_and_mine(id)) continue;
      const Visit fate = decide(id);
      if (fate == Visit::leave) continue;
      if (fate == Visit::reset && port != nullptr) tell_both(id, *port);
      ending[count++] = id;
    }
  }
  if (count > 0) {
    [[maybe_unused]] const auto guard = tracker_->writing();
    for (std::size_t i = 0; i < count; ++i)
      tracker_->close(ending[i], [this, why](ConnId id) { closed(id, why); });
  }
  if (count > 0) tracker_->reclaim();
  return at;
}

template <class TrackerType, class K>
std::optional<std::size_t> Family<TrackerType, K>::visit(std::size_t from, Tick now,
                                                         const VisitConnection& visit, Port* port) {
  return for_each_from(from, Ending::killed, port,
                       [&](ConnId id) { return visit(listed(id, now)); });
}

template <class TrackerType, class K>
std::optional<std::size_t> Family<TrackerType, K>::review(std::size_t from, Port* port,
                                                          std::size_t& ended) {
  return for_each_from(from, Ending::moved, port, [&](ConnId id) {
    const bool answered = is_answered(tracker_->state_of(Side::originator, id));
    switch (function_->fate(tracker_->key_of(id), nullptr, state_of(id), answered)) {
      case Fate::begins_anew:
        ++ended;
        return Visit::end;
      case Fate::reset:
        ++ended;
        return Visit::reset;
      case Fate::stays:
        break;
    }
    return Visit::leave;
  });
}

/// Sends each side of a TCP connection a RST with the sequence number that this side expects next
/// (RFC 5961, 3.2), if packets of the opposite side have shown that number. Without the number,
/// only a client that waits for the answer to its SYN gets a RST: such a client judges a RST by the
/// RST's acknowledgement number. Sends no RST if the connection has no reply's entry, or is closed
/// or in `time_wait`.
template <class TrackerType, class K>
void Family<TrackerType, K>::tell_both(ConnId id, Port& port) const {
  const K& key = tracker_->key_of(id);
  const ConnId reply = peer_of(tracker_->originators().header(id));
  const ConnectionState state = tracker_->state_of(Side::originator, id);
  const bool has_ended = state == ConnectionState::closed || state == ConnectionState::time_wait;
  if (key.protocol != kProtocolTcp || reply == ConnId::none || reply == kUnconfirmed || has_ended)
    return;
  const std::uint32_t mark = tracker_->mark_of_other(Side::reply, reply);
  const std::uint32_t reply_mark = tracker_->mark_of_other(Side::originator, id);
  const auto known = [](std::uint32_t of) { return of != 0 ? std::optional(of) : std::nullopt; };
  if (reply_mark != 0 || state == ConnectionState::syn_sent)
    port.tell({reversed(key), reply_mark, known(mark)});
  if (mark != 0) port.tell({translated(id), mark, known(reply_mark)});
}

template <class TrackerType, class K>
std::optional<ListedConnection> Family<TrackerType, K>::find(const K& key, Tick now) const {
  if (!tracker_) return std::nullopt;
  [[maybe_unused]] const auto guard = tracker_->reading();
  const ConnId id = tracker_->peek_one(key, now);
  if (id == ConnId::none) return std::nullopt;
  return listed(id, now);
}

}  // namespace millrace
