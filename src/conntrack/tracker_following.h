// The part of the tracker that follows a connection through its states.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conntrack/tracker.h"

namespace millrace {

namespace detail {

/// True if this is a backend's data, or FIN, where nothing but a SYN was seen. Its end is kept as
/// the mark even where it acknowledges more than was seen: once the originator acknowledges that,
/// its own mark follows across the gap, and the next such segment is in sequence.
inline bool is_unseen_answer(ConnectionState state, Side side, Signal signal,
                             const Segment& segment) {
  return side == Side::reply && (signal == Signal::ack || signal == Signal::fin) &&
         segment.is_whole && segment.acknowledges && segment.length() > 0 &&
         state == ConnectionState::syn_sent;
}

}  // namespace detail

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Limits>
auto Tracker<TableOf, GuardsType, K>::follow(Side side, ConnId id, Signal signal,
                                             const Segment& segment, Tick now, Limits& limits)
    -> Followed {
  const Records<K>& records = table_of(side).records();
  if (peer_of(records.header(id)) == kUnconfirmed) return Followed::passed;  // it has just ended
  Life& own = life(records, id);
  const Direction from = direction(side, id);
  if (signal == Signal::syn_ack && from == Direction::reply && reopens(id, segment))
    signal = Signal::reopen;
  if (!lasts(load_state(own), from, signal, age_ms(own, now))) {
    const bool may_answer = detail::is_unseen_answer(load_state(own), side, signal, segment);
    if (signal != Signal::packet && from != Direction::only &&
        !is_in_sequence(side, id, signal, segment)) {
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

/// The originator's entry has the truth, the reply's a copy. What a proof takes is taken before
/// the truth says so, and given back after: so no more is out than is counted, whoever changes it
/// meanwhile. False: a limit forbids the step.
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
    if (was.has_ended()) break;  // by its owner
    ConnectionState state =
        next_state(was.state(), direction, signal, protocol, age_ms(truth, now));
    // The one before ended in this very burst: the same backend gets this one, too.
    if (state == kAnew) state = ConnectionState::syn_sent;
    Proof proof = was.proof();
    if (is_half_open(state)) {
      proof = Proof::none;  // it begins again
    } else if (!is_in_use(state, direction) && holds(proof)) {
      proof = Proof::past;
    } else if (!holds(proof) && is_in_use(state, direction) &&
               proves(was.state(), direction, state)) {
      if (taken == Proof::none) taken = limits.take(originator);
      proof = taken;
      is_refused = taken == Proof::none;
      if (is_refused) continue;  // unless another worker has changed it meanwhile
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
    if (timeouts_[next.state()] < timeout(was.state(), protocol))
      ageing_->sooner(originator, now, now + timeouts_[next.state()]);
  }
  return true;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
std::uint32_t Tracker<TableOf, GuardsType, K>::mark_of_other(Side side, ConnId id) const {
  const ConnId peer = peer_of(table_of(side).records().header(id));
  const Side other = side == Side::originator ? Side::reply : Side::originator;
  return peer == kUnconfirmed ? 0 : load_mark(life(table_of(other).records(), peer));
}

/// Whether a RST stands where its sender's next byte would. Once a FIN was seen, it may answer a
/// packet that was sent before the last of what it resets had arrived: it then stands where that
/// one acknowledged. One that answers a SYN is known by what it acknowledges (RFC 9293, 3.10.7.3).
/// While nothing is known of its sender, a RST can but close what nobody has proved to be real.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_expected(Side side, ConnId id,
                                                  const Segment& segment) const {
  if (!segment.is_whole) return false;
  const std::uint32_t mark = load_mark(life(table_of(side).records(), id));
  const ConnectionState state = state_of(side, id);
  if (side == Side::reply && segment.acknowledges) {  // the backend refuses a new connection
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

/// True if this SYN and ACK answers a SYN that met the living connection with another number: both
/// ends have begun again. False for a repeated SYN and ACK, which answers the first SYN.
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

/// True if the sender of a packet that would change the state has seen the other side's packets. A
/// SYN's sender need not have. Anybody can make a backend send a bare ACK (RFC 9293, 3.10.7.4), so
/// in `midstream`, and in `syn_sent` where the answer was not captured, only a backend's data or
/// FIN counts.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::is_in_sequence(Side side, ConnId id, Signal signal,
                                                     const Segment& segment) const {
  if (signal == Signal::syn || signal == Signal::reopen) return true;
  if (signal == Signal::syn_ack) {  // it may acknowledge less than a SYN with data (RFC 7413)
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
  // What was sent before a handshake is over fits into a window that is not scaled.
  return state != ConnectionState::syn_received ||
         mark_of_other(side, id) - segment.acknowledged <= UINT16_MAX;
}

/// True if the segment begins or ends at its sender's mark, or ends beyond a gap and acknowledges a
/// number near the other side's mark: the wider the gap, the nearer that number must be.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::continues(Side side, ConnId id,
                                                const Segment& segment) const {
  const std::uint32_t mark = load_mark(life(table_of(side).records(), id));
  if (segment.sequence == mark || segment.next == mark || mark == 0) return true;
  const std::uint32_t gap = segment.next - mark;
  if (gap > INT32_MAX || !segment.acknowledges) return false;
  const std::uint32_t other = mark_of_other(side, id);
  if (other == 0) return gap <= kReach;
  const std::uint32_t beyond = segment.acknowledged - other;
  const std::uint64_t distance = std::min(beyond, other - segment.acknowledged);
  if (gap <= kReach && distance <= kReach) return true;
  const ConnId reply = side == Side::reply ? id : peer_of(originators().header(id));
  if (reply == kUnconfirmed) return false;  // another worker has just ended it
  const std::uint32_t window = load_windows(life(replies(), reply)).widest(side == Side::reply);
  return gap <= window && gap * (2 * distance + 1) <= kReachOfBoth;
}

/// Sets the mark of a SYN's sender, or of the sender of its answer, and keeps the window scale. An
/// answer that reopens the connection sets the originator's mark, too.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::begin_sequence(Side side, ConnId id, Signal signal,
                                                     const Segment& segment) const {
  store_mark(life(table_of(side).records(), id), segment.next);
  const ConnId peer = peer_of(table_of(side).records().header(id));
  if (peer == kUnconfirmed) return;
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

/// Nobody who guesses numbers moves the mark: what continues does, and what opens the connection.
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
  if (segment.next != load_mark(own) && continues(side, id, segment)) store_mark(own, segment.next);
}

}  // namespace millrace
