// The part of the tracker that follows connections: it advances their states and sequence numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conntrack/tracker.h"

namespace millrace {

namespace detail {

/// True if a segment is the replying side's data or FIN in `syn_sent`: that side's SYN and ACK was
/// not seen. The tracker then sets the replying side's mark to the segment's end, even if the
/// segment acknowledges more than was seen. Once the originator acknowledges that end, the
/// originator's mark moves across the gap, and the replying side's next segment is in sequence.
inline bool is_unseen_answer(ConnectionState state, Side side, Signal signal,
                             const Segment& segment) {
  return side == Side::reply && (signal == Signal::ack || signal == Signal::fin) &&
         segment.is_whole && segment.acknowledges && segment.length() > 0 &&
         state == ConnectionState::syn_sent;
}

}  // namespace detail

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::begins_anew(ConnId id, Signal signal) const {
  return next_state(state_of(Side::originator, id), direction(Side::originator, id), signal,
                    originators().header(id).key.protocol, 0) == kAnew;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline bool Tracker<TableOf, GuardsType, K>::concerns(Side side, ConnId id, Signal signal,
                                                      Tick now) const {
  const Direction from = direction(side, id);
  const bool is_checked = concerns_marks(signal) || (checks_ && is_sctp(signal));
  if (is_checked && from != Direction::only) return true;
  Life& own = life(table_of(side).records(), id);
  return !lasts(load_state(own), from, signal, age_ms(own, now));
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Limits>
auto Tracker<TableOf, GuardsType, K>::follow(Side side, ConnId id, Signal signal,
                                             const Segment& segment, Tick now, Limits& limits)
    -> Followed {
  const Records<K>& records = table_of(side).records();
  if (peer_of(records.header(id)) == kUnconfirmed) return Followed::passed;  // just ended
  Life& own = life(records, id);
  const Direction from = direction(side, id);
  if (checks_ && is_tcp(signal) && from != Direction::only) settle(side, id);
  if (signal == Signal::syn_ack && from == Direction::reply && reopens(id, segment))
    signal = Signal::reopen;
  if (checks_ && is_tcp(signal) && from != Direction::only &&
      !is_within_windows(side, id, signal, segment))
    return Followed::invalid;
  if (!lasts(load_state(own), from, signal, age_ms(own, now))) {
    const bool may_answer = detail::is_unseen_answer(load_state(own), side, signal, segment);
    if (is_tcp(signal) && from != Direction::only && !is_in_sequence(side, id, signal, segment)) {
      if (may_answer) store_mark(own, segment.next);
      return signal == Signal::rst ? Followed::reset_ignored : Followed::passed;
    }
    if (!change(side, id, from, signal, now, limits)) return Followed::not_proved;
    if (may_answer) store_mark(own, segment.next);
  } else if (signal == Signal::syn && from == Direction::originator) {
    shared_->syns.note(id, {segment.next, segment.window_scale});
  }
  if (from != Direction::only && segment.is_whole) advance(side, id, signal, segment);
  return Followed::passed;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline bool Tracker<TableOf, GuardsType, K>::follow_alone(Side side, ConnId id,
                                                          const Segment& ack) const {
  const Records<K>& records = originators();  // both sides of the connection stand in one table
  Life& own = life(records, id);
  Acknowledged& acknowledged = acknowledged_by(records, id);
  const Direction from = direction(side, id);
  const std::uint32_t mark = load_mark(own);
  const std::uint32_t number = load_number(acknowledged);
  const bool continues = ack.sequence == mark;
  const bool is_repeated = mark - ack.next <= kReach;
  const bool acknowledges_little = ack.acknowledged - number <= UINT16_MAX;
  const std::uint32_t wrapped =
      ((ack.acknowledged ^ number) | (continues ? ack.next ^ mark : 0)) & ~(kSettlingBytes - 1);
  if (!ack.is_whole || !(continues || is_repeated) || !acknowledges_little || wrapped != 0 ||
      from == Direction::only || peer_of(records.header(id)) == kUnconfirmed ||
      !lasts(load_state(own), from, Signal::ack, 0))
    return false;
  if (continues && ack.next != mark) store_mark(own, ack.next);
  if (ack.acknowledged != number) store_number(acknowledged, ack.acknowledged);
  return true;
}

/// Brings the marks of a checked TCP connection up to the numbers that the opposite sides have
/// acknowledged. Numbers that are far behind the marks move there, so that a mark never seems to be
/// behind them because sequence numbers have begun again from 0.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::settle(Side side, ConnId id) const {
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == ConnId::none || peer == kUnconfirmed) return;
  const bool is_reply = side == Side::reply;
  const ConnId originator = is_reply ? peer : id;
  const ConnId reply = is_reply ? id : peer;
  if (!load_windows(life(replies(), reply)).are_known()) return;
  const auto raise = [](Life& of, Acknowledged& by_other) {
    const std::uint32_t mark = load_mark(of);
    const auto ahead = static_cast<std::int32_t>(load_number(by_other) - mark);
    if (ahead > 0) store_mark(of, load_number(by_other));
    constexpr auto kFar = static_cast<std::int32_t>(2 * kSettlingBytes);
    if (ahead < -kFar) store_number(by_other, mark - 2 * kSettlingBytes);
  };
  raise(life(originators(), originator), acknowledged_by(replies(), reply));
  raise(life(replies(), reply), acknowledged_by(originators(), originator));
}

/// Changes the state in the originator's entry by compare-and-swap, then its copy in the reply's
/// entry. A proof is taken from the limits before the swap that sets it, and given back after the
/// swap that clears it, so that the limits count every proved connection even while several workers
/// change it. Returns false if a limit forbids the change.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Limits>
bool Tracker<TableOf, GuardsType, K>::change(Side side, ConnId id, Direction direction,
                                             Signal signal, Tick now, Limits& limits) {
  const ConnId peer = peer_of(table_of(side).records().header(id));
  const ConnId originator = side == Side::originator ? id : peer;
  const ConnId reply = side == Side::originator ? peer : id;
  if (peer == kUnconfirmed) return true;
  Life& truth = life(originators(), originator);
  const std::uint8_t protocol = originators().header(originator).key.protocol;
  Standing was = load_standing(truth);
  Standing next;
  Proof taken = Proof::none;
  bool is_refused = false;
  do {
    next = was;
    is_refused = false;
    if (was.has_ended()) break;  // another worker has ended the connection
    ConnectionState state =
        next_state(was.state(), direction, signal, protocol, age_ms(truth, now));
    // The line did not end the former connection: that one reached this state in this burst, or
    // another worker opened it. The new connection keeps the former one's entry and backend.
    if (state == kAnew) state = next_state(ConnectionState::none, direction, signal, protocol, 0);
    Proof proof = was.proof();
    if (is_half_open(state)) {
      proof = Proof::none;  // the connection begins again
    } else if (!is_in_use(state, direction) && holds(proof)) {
      proof = Proof::past;
    } else if (!holds(proof) && is_in_use(state, direction) &&
               proves(was.state(), direction, state)) {
      if (taken == Proof::none) taken = limits.take(originator);
      proof = taken;
      is_refused = taken == Proof::none;
      if (is_refused) continue;  // the swap checks that no other worker has changed the standing
    }
    next = Standing(state, proof);
  } while (!standing_of(truth).compare_exchange_weak(was, next, std::memory_order_acq_rel,
                                                     std::memory_order_relaxed));
  const Proof before = was.proof();
  const bool is_proof = !holds(before) && holds(next.proof());
  if (taken != Proof::none && !is_proof) limits.give_back(originator, taken);
  if (is_refused) return false;
  if (was.has_ended()) return true;
  if (holds(before) && !holds(next.proof())) limits.give_back(originator, before);
  count_unproved(originator,
                 std::int64_t{next.proof() == Proof::none} - std::int64_t{before == Proof::none});
  if (reply != ConnId::none && reply != kUnconfirmed)
    store_standing(life(replies(), reply), Standing::of_reply(next.state()));
  if constexpr (!Guarding::kShared) {
    const std::uint32_t shorter = timeout(next.state(), protocol);
    if (shorter < timeout(was.state(), protocol)) ageing_->sooner(originator, now, now + shorter);
  }
  return true;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
std::uint32_t Tracker<TableOf, GuardsType, K>::mark_of_other(Side side, ConnId id) const {
  const ConnId peer = peer_of(table_of(side).records().header(id));
  const Side other = side == Side::originator ? Side::reply : Side::originator;
  if (checks_ && table_of(side).records().header(id).key.protocol == kProtocolTcp) settle(side, id);
  return peer == kUnconfirmed ? 0 : load_mark(life(table_of(other).records(), peer));
}

/// True if a RST is in sequence: at its sender's mark, where the sender's next byte would be. A RST
/// without a captured header never is. Once a side has sent a FIN, a RST may be up to 64 KiB before
/// the mark, as it may answer a packet that was sent before the FIN arrived. A RST that answers a
/// SYN is known by the number that it acknowledges (RFC 9293, 3.10.7.3). If the sender has no mark,
/// the RST may only close a half-open connection that is not in `syn_sent`.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_expected(Side side, ConnId id,
                                                  const Segment& segment) const {
  if (!segment.is_whole) return false;
  const std::uint32_t mark = load_mark(life(table_of(side).records(), id));
  const ConnectionState state = state_of(side, id);
  if (side == Side::reply && segment.acknowledges) {  // the replying side refuses a repeated SYN
    const auto syn = shared_->syns.find(peer_of(replies().header(id)));
    if (syn && syn->next == segment.acknowledged) return true;
  }
  if (side == Side::reply && state == ConnectionState::syn_sent && segment.acknowledges &&
      segment.acknowledged == mark_of_other(side, id))
    return true;
  if (mark != 0) return mark - segment.sequence <= (is_closing(state) ? UINT16_MAX : 0);
  if (state == ConnectionState::syn_sent) return false;
  return is_half_open(state);
}

/// True if this SYN and ACK answers a SYN that arrived for the live connection, and the new
/// sequence number of at least one side is not within `kReach` before that side's mark: both ends
/// have begun again. A repeated SYN and ACK, which answers the first SYN, is within `kReach` on
/// both sides.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::reopens(ConnId reply, const Segment& segment) const {
  const ConnId originator = peer_of(replies().header(reply));
  if (originator == kUnconfirmed) return false;
  const auto syn = shared_->syns.find(originator);
  if (!syn || !segment.acknowledges || segment.acknowledged != syn->next) return false;
  const std::uint32_t mark = load_mark(life(originators(), originator));
  const std::uint32_t reply_mark = load_mark(life(replies(), reply));
  return mark - syn->next >= kReach || reply_mark - segment.next >= kReach;
}

/// True if the sequence numbers of a packet allow it to change the state. Checks the numbers of a
/// RST (`is_expected`), a FIN (`continues`), the replying side's SYN and ACK, a reply in
/// `syn_sent`, and an ACK or FIN in `syn_received`. An ACK or FIN without a captured header must be
/// the originator's first packet. The replying side's bare ACK does not count in `none`,
/// `midstream` and `syn_sent`, as anyone can provoke it (RFC 9293, 3.10.7.4).
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_in_sequence(Side side, ConnId id, Signal signal,
                                                     const Segment& segment) const {
  if (signal == Signal::syn || signal == Signal::reopen) return true;
  if (signal == Signal::syn_ack) {  // may acknowledge only a part of a SYN with data (RFC 7413)
    const std::uint32_t other = mark_of_other(side, id);
    return side == Side::originator || other == 0 || !segment.acknowledges ||
           other - segment.acknowledged <= UINT16_MAX;
  }
  if (signal == Signal::rst) return is_expected(side, id, segment);
  const ConnectionState state = state_of(side, id);
  const bool is_first = state == ConnectionState::none;
  if (!segment.is_whole) return is_first && side == Side::originator;
  if (signal == Signal::fin && !continues(side, id, segment)) return false;
  if (side == Side::reply && (is_first || state == ConnectionState::midstream))
    return segment.length() > 0;
  if (side == Side::reply && state == ConnectionState::syn_sent) {
    return segment.length() > 0 && segment.acknowledges &&
           mark_of_other(side, id) - segment.acknowledged <= kReach;
  }
  // Windows are not scaled before the handshake ends: at most 65,535 bytes are unacknowledged.
  return state != ConnectionState::syn_received ||
         mark_of_other(side, id) - segment.acknowledged <= UINT16_MAX;
}

/// True if the segment begins or ends at its sender's mark, or if the sender has no mark. Also true
/// if the segment ends beyond a gap and acknowledges a number near the opposite side's mark: the
/// wider the gap, the nearer the number must be. If the opposite side has no mark, the gap is at
/// most `kReach`.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::continues(Side side, ConnId id,
                                                const Segment& segment) const {
  const std::uint32_t mark = load_mark(life(table_of(side).records(), id));
  if (segment.sequence == mark || segment.next == mark || mark == 0) return true;
  const std::uint32_t gap = segment.next - mark;
  return gap <= INT32_MAX && segment.acknowledges && is_plausible(side, id, gap, segment);
}

/// True if a segment that ends `gap` bytes from its sender's mark acknowledges a number near enough
/// to the opposite side's mark.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_plausible(Side side, ConnId id, std::uint32_t gap,
                                                   const Segment& segment) const {
  const std::uint32_t other = mark_of_other(side, id);
  if (other == 0) return gap <= kReach;
  const std::uint32_t beyond = segment.acknowledged - other;
  const std::uint64_t distance = std::min(beyond, other - segment.acknowledged);
  if (gap <= kReach && distance <= kReach) return true;
  const ConnId reply = side == Side::reply ? id : peer_of(originators().header(id));
  if (reply == kUnconfirmed) return false;  // another worker has just ended the connection
  const std::uint32_t window = load_windows(life(replies(), reply)).widest(side == Side::reply);
  const std::uint64_t reach = checks_ ? kReachOfBothChecked : kReachOfBoth;
  return gap <= window && gap * (2 * distance + 1) <= reach;
}

/// False if the segment cannot be of this connection: it ends more than its receiver's widest
/// window beyond its sender's mark, or acknowledges what ends as far beyond the opposite side's
/// mark. The window is the slack that is needed for segments that were not seen: lost on the way
/// here, or on another path. Until both SYNs were seen, only an answer to the SYN can be wrong, by
/// acknowledging more than the SYN. What its receiver judges by other rules is never wrong: a SYN,
/// a SYN and ACK (RFC 5961, 4), a RST that closes the connection, numbers below what is expected
/// (RFC 9293, 3.10.7.4).
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline bool Tracker<TableOf, GuardsType, K>::is_within_windows(Side side, ConnId id, Signal signal,
                                                               const Segment& segment) const {
  if (!segment.is_whole) return true;
  const bool is_reply = side == Side::reply;
  Life& own = life(table_of(side).records(), id);
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == kUnconfirmed) return true;  // another worker has just ended the connection
  Life& others = life(table_of(is_reply ? Side::originator : Side::reply).records(), peer);
  const std::uint32_t other = load_mark(others);
  const auto is_beyond = [](std::uint32_t number, std::uint32_t mark, std::uint32_t window) {
    return static_cast<std::int32_t>(number - mark) > static_cast<std::int32_t>(window);
  };
  // Some senders of RSTs set the flag ACK, and leave the number 0.
  const bool acknowledges =
      segment.acknowledges && (signal != Signal::rst || segment.acknowledged != 0);
  const Windows windows = load_windows(is_reply ? own : others);
  if (!windows.are_known()) {
    const bool answers = is_reply && (signal == Signal::syn_ack || signal == Signal::rst);
    return load_state(own) != ConnectionState::syn_sent || !answers || !acknowledges ||
           other == 0 || !is_beyond(segment.acknowledged, other, 0);
  }
  if (signal == Signal::syn || signal == Signal::syn_ack || signal == Signal::reopen) return true;
  if (!is_beyond(segment.next, load_mark(own), windows.widest(is_reply)) &&
      (!acknowledges || !is_beyond(segment.acknowledged, other, windows.widest(!is_reply))))
    return true;
  return signal == Signal::rst && is_expected(side, id, segment);
}

/// Sets the mark of the sender of a SYN, or of a SYN and ACK, and stores the sender's window scale.
/// A SYN and ACK that reopens the connection sets the originator's mark, too.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::begin_sequence(Side side, ConnId id, Signal signal,
                                                     const Segment& segment) const {
  store_mark(life(table_of(side).records(), id), segment.next);
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == kUnconfirmed) return;
  const Side across = side == Side::originator ? Side::reply : Side::originator;
  if (checks_) {
    store_number(acknowledged_by(table_of(across).records(), peer), segment.next);
    if (segment.acknowledges)
      store_number(acknowledged_by(table_of(side).records(), id), segment.acknowledged);
  }
  if (side == Side::originator) {
    store_windows(life(replies(), peer), Windows::offered(segment.window_scale));
    return;
  }
  Life& own = life(replies(), id);
  Windows offered = load_windows(own);
  if (signal == Signal::reopen) {
    store_mark(life(originators(), peer), segment.acknowledged);
    if (const auto syn = shared_->syns.find(peer)) offered = Windows::offered(syn->window_scale);
  }
  store_windows(own, offered.answered(segment.window_scale));
}

/// Moves the sender's mark to the segment's end if the segment opens the connection or continues
/// the sender's sequence (`continues`), so that a sender that guesses sequence numbers moves no
/// mark. If packets are checked, the opposite side's mark moves to the acknowledged number if that
/// is beyond it: those bytes were sent, although they were not seen here or moved no mark.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::advance(Side side, ConnId id, Signal signal,
                                              const Segment& segment) const {
  using enum ConnectionState;
  Life& own = life(table_of(side).records(), id);
  const auto opens = [signal, state = load_state(own)] {
    return (signal == Signal::syn && (state == syn_sent || state == syn_sent2)) ||
           (signal == Signal::syn_ack && state == syn_received) || signal == Signal::reopen;
  };
  if (signal != Signal::ack && opens()) return begin_sequence(side, id, signal, segment);
  if (checks_ && segment.acknowledges) raise_other(side, id, segment);
  if (segment.next != load_mark(own) && continues(side, id, segment)) store_mark(own, segment.next);
}

/// Keeps the acknowledged number and moves the opposite side's mark forward to it, if packets of
/// the connection are checked, which bounds the number, and the segment lies near its own sender's
/// mark.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline void Tracker<TableOf, GuardsType, K>::raise_other(Side side, ConnId id,
                                                         const Segment& segment) const {
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == kUnconfirmed) return;
  const bool is_reply = side == Side::reply;
  Life& others = life(table_of(is_reply ? Side::originator : Side::reply).records(), peer);
  Life& own = life(table_of(side).records(), id);
  Acknowledged& acknowledged = acknowledged_by(table_of(side).records(), id);
  const std::uint32_t number = segment.acknowledged;
  if (!load_windows(is_reply ? own : others).are_known()) return store_number(acknowledged, number);
  const std::uint32_t ahead = segment.next - load_mark(own);
  if (!is_plausible(side, id, std::min(ahead, -ahead), segment)) return;
  const auto is_beyond = [number](std::uint32_t was) {
    return static_cast<std::int32_t>(number - was) > 0;
  };
  if (is_beyond(load_number(acknowledged))) store_number(acknowledged, number);
  if (is_beyond(load_mark(others))) store_mark(others, number);
}

}  // namespace millrace
