// The part of the tracker that follows SCTP associations: their states and verification tags.
//
// A packet is known to be of one of the ends by its verification tag: 32 random bits that the
// receiver has chosen and told its sender in the handshake (RFC 9260, 8.5). The tag that a side's
// packets must hold is the mark of its entry. A packet with another tag changes nothing.
//
// An INIT on a live association may be forged, and changes nothing. Three packets show that both
// ends begin again (RFC 9260, 5.2): the INIT, an INIT ACK with the INIT's tag, and a COOKIE ECHO
// with the INIT ACK's tag, which only a sender that has received the INIT ACK can know.
#pragma once

#include <cstdint>

#include "conntrack/tracker.h"

namespace millrace {

namespace detail {

/// Returns how an INIT of that side, or else an INIT ACK that answers one, is marked among the
/// repeated SYNs.
constexpr std::uint8_t step_of(Side initiator, bool is_answered) {
  return static_cast<std::uint8_t>((initiator == Side::reply ? 2 : 0) + (is_answered ? 1 : 0));
}
constexpr Side opposite(Side side) {
  return side == Side::originator ? Side::reply : Side::originator;
}

}  // namespace detail

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Limits>
auto Tracker<TableOf, GuardsType, K>::follow(Side side, ConnId id, Signal signal, const Tags& tags,
                                             Tick now, Limits& limits) -> Followed {
  const Records<K>& records = table_of(side).records();
  if (peer_of(records.header(id)) == kUnconfirmed) return Followed::passed;  // just ended
  const Direction from = direction(side, id);
  const bool sees_both = from != Direction::only;
  if (sees_both && signal == Signal::sctp_cookie_echo && restarts(side, id, tags))
    signal = Signal::sctp_restart;
  if (checks_ && sees_both && !is_of_association(side, id, signal, tags)) return Followed::invalid;
  const ConnectionState was = load_state(life(records, id));
  const bool changes = !lasts(was, from, signal, 0);
  const bool is_wrong = sees_both && changes && !is_tagged(side, id, signal, tags);
  if (is_wrong && signal != Signal::sctp_init_ack)
    return signal == Signal::sctp_abort ? Followed::reset_ignored : Followed::passed;
  if (changes && !is_wrong && !change(side, id, from, signal, now, limits))
    return Followed::not_proved;
  if (sees_both && tags.is_whole) learn(side, id, signal, tags, was);
  return Followed::passed;
}

/// True if the COOKIE ECHO has the tag of an INIT ACK that answers a repeated INIT of this side.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::restarts(Side side, ConnId id, const Tags& tags) const {
  const ConnId originator = side == Side::originator ? id : peer_of(replies().header(id));
  const auto noted = shared_->syns.find(originator);
  return noted && noted->window_scale == detail::step_of(side, true) && tags.is_whole &&
         tags.tag == noted->next;
}

/// False if the packet cannot be of this association: its tag is known to be another one. An INIT,
/// and a COOKIE ECHO that begins the association again, are of every association. What answers a
/// repeated INIT holds the INIT's tag. While an INIT ACK waits for its COOKIE ECHO, the COOKIE ECHO
/// may answer an earlier INIT ACK, which had another tag.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_of_association(Side side, ConnId id, Signal signal,
                                                        const Tags& tags) const {
  if (!tags.is_whole || signal == Signal::sctp_init || signal == Signal::sctp_restart) return true;
  if (signal == Signal::sctp_cookie_echo && state_of(side, id) == ConnectionState::sctp_cookie_sent)
    return true;
  const std::uint32_t mark =
      tags.reflects ? mark_of_other(side, id) : load_mark(life(table_of(side).records(), id));
  if (mark == 0 || tags.tag == mark) return true;
  const ConnId originator = side == Side::originator ? id : peer_of(replies().header(id));
  const auto noted = shared_->syns.find(originator);
  return noted && noted->window_scale == detail::step_of(detail::opposite(side), false) &&
         tags.tag == noted->next;
}

/// True if a packet's tag allows it to change the state. A packet whose tag was not captured must
/// be the originator's first one. A side without a mark may have any tag, but a COOKIE ECHO must
/// answer an INIT ACK that was seen, and an ABORT must have a known tag or be in `sctp_midstream`.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_tagged(Side side, ConnId id, Signal signal,
                                                const Tags& tags) const {
  using enum ConnectionState;
  const ConnectionState state = state_of(side, id);
  if (!tags.is_whole) return side == Side::originator && state == none;
  if (signal == Signal::sctp_init || signal == Signal::sctp_restart) return true;
  const std::uint32_t mark =
      tags.reflects ? mark_of_other(side, id) : load_mark(life(table_of(side).records(), id));
  if (mark != 0) return tags.tag == mark;
  if (signal == Signal::sctp_abort || signal == Signal::sctp_shutdown_complete)
    return state == sctp_midstream;
  return signal != Signal::sctp_cookie_echo || state == none;
}

/// Keeps what a packet shows of the sides' tags: a packet that was accepted, or an INIT ACK, which
/// may answer a repeated INIT. `was`: the state before the packet.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::learn(Side side, ConnId id, Signal signal, const Tags& tags,
                                            ConnectionState was) const {
  using enum ConnectionState;
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == kUnconfirmed) return;  // another worker has just ended the connection
  const Side across = detail::opposite(side);
  const ConnId originator = side == Side::originator ? id : peer;
  Life& own = life(table_of(side).records(), id);
  Life& others = life(table_of(across).records(), peer);
  const ConnectionState state = load_state(own);
  if (signal == Signal::sctp_restart) {
    store_mark(own, tags.tag);
    store_mark(others, 0);  // the next packet of that side shows it
  } else if (signal == Signal::sctp_init && state != was) {
    store_mark(own, 0);
    store_mark(others, tags.initiate);
  } else if (signal == Signal::sctp_init) {
    if (tags.initiate != load_mark(others))
      shared_->syns.note(originator, {tags.initiate, detail::step_of(side, false)});
  } else if (signal == Signal::sctp_init_ack) {
    const auto noted = shared_->syns.find(originator);
    if (tags.tag == load_mark(own)) {
      if (state == sctp_cookie_sent) store_mark(others, tags.initiate);
    } else if (noted && noted->window_scale == detail::step_of(across, false) &&
               noted->next == tags.tag) {
      shared_->syns.note(originator, {tags.initiate, detail::step_of(across, true)});
    }
  } else if (state != was) {
    if (load_mark(own) == 0 && !tags.reflects) store_mark(own, tags.tag);
    // The COOKIE ECHO had another tag than the latest INIT ACK: it answered an earlier one.
    if (was == sctp_cookie_sent && state == sctp_established) store_mark(others, 0);
  }
}

}  // namespace millrace
