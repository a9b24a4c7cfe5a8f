// The next state of a connection after each packet, and what states mean.
//
// The TCP states are those of RFC 9293, 3.3.2, as seen from between the ends, and of Linux's
// nf_conntrack_proto_tcp.c. Unlike Linux's states, these say which side has sent its FIN, so that a
// repeated FIN is not taken for the opposite side's FIN. The SCTP states are those of RFC 9260, 4,
// and of Linux's nf_conntrack_proto_sctp.c. The tracker checks sequence numbers and verification
// tags before it consults the tables (tracker_following.h, tracker_associations.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "conntrack/connection_state.h"
#include "conntrack/state_tables.h"
#include "core/protocol.h"
#include "core/signal.h"

namespace millrace {

namespace detail {

/// Returns a set of states, one bit each.
constexpr std::uint32_t set_of(std::initializer_list<ConnectionState> states) {
  std::uint32_t set = 0;
  for (const ConnectionState state : states)
    set |= std::uint32_t{1} << static_cast<unsigned>(state);
  return set;
}
static_assert(kConnectionStates <= 32);

/// Returns the column of `kSctpTable` for a state.
constexpr std::size_t sctp_column(ConnectionState state) {
  constexpr auto kBefore = static_cast<std::size_t>(ConnectionState::sctp_cookie_wait) - 1;
  return state == ConnectionState::none ? 0 : static_cast<std::size_t>(state) - kBefore;
}

/// Returns the first state of a connection of a protocol other than TCP, if its first packet says
/// nothing.
constexpr ConnectionState unreplied(std::uint8_t protocol) {
  switch (protocol) {
    case kProtocolUdp:
      return ConnectionState::udp_unreplied;
    case kProtocolSctp:
      return ConnectionState::sctp_midstream;
    case kProtocolIcmp:
    case kProtocolIcmpV6:
      return ConnectionState::icmp_unreplied;
    default:
      return ConnectionState::other_unreplied;
  }
}

}  // namespace detail

/// Age in ms from which a UDP conversation in the state `udp` is a stream: Linux's rule.
inline constexpr std::uint32_t kStreamAfterMs = 2000;

/// True if only the beginning of a handshake or a conversation was seen, and in `midstream` and
/// `sctp_midstream`. A COOKIE ECHO is more than the beginning: it shows that its sender has
/// received the INIT ACK.
constexpr bool is_half_open(ConnectionState state) {
  using enum ConnectionState;
  constexpr auto kHalfOpen = detail::set_of({none, syn_sent, syn_sent2, syn_received, midstream,
                                             sctp_cookie_wait, sctp_cookie_sent, sctp_midstream,
                                             udp_unreplied, icmp_unreplied, other_unreplied});
  return (kHalfOpen >> static_cast<unsigned>(state) & 1) != 0;
}

/// True if the replying side has sent a packet, or may have, as in `midstream` and `closed`. False
/// in `none`, `syn_sent`, `sctp_cookie_wait` and the `_unreplied` states.
constexpr bool is_answered(ConnectionState state) {
  using enum ConnectionState;
  constexpr auto kUnanswered = detail::set_of(
      {none, syn_sent, sctp_cookie_wait, udp_unreplied, icmp_unreplied, other_unreplied});
  return (kUnanswered >> static_cast<unsigned>(state) & 1) == 0;
}

/// True if a packet of that direction that changes the state from `was` to `next` proves that its
/// connection is real. A RST proves nothing; nor does an originator's FIN in `midstream`, as its
/// sender may have made up the whole connection.
constexpr bool proves(ConnectionState was, Direction from, ConnectionState next) {
  using enum ConnectionState;
  const bool is_made_up = was == midstream && from == Direction::originator;
  const bool has_failed = next == closed || next == sctp_aborted;
  return next != was && !has_failed && !is_half_open(next) && !is_made_up;
}

/// True if a proved connection in that state still counts for limits. False if both sides, or the
/// only side that is seen, have ended the connection, or if the connection begins again. True after
/// a RST or an ABORT, too: the opposite side may not have received it.
constexpr bool is_in_use(ConnectionState state, Direction from) {
  using enum ConnectionState;
  const bool both_ended =
      state == time_wait || state == sctp_shutdown_ack_sent || state == sctp_closed;
  const bool one_ended = state == fin_wait || state == sctp_shutdown_sent;
  const bool has_ended = both_ended || (one_ended && from == Direction::only);
  return !is_half_open(state) && !has_ended;
}

/// Returns the rank of a live connection, 0 to 3; the lowest is evicted first. 0: both sides, or a
/// RST or ABORT, have ended the connection; 1: no packet has proved it; 2: the connection is
/// closing, or may be a single query; 3: the connection goes on.
constexpr unsigned rank(ConnectionState state, bool is_proved) {
  using enum ConnectionState;
  constexpr auto kEnded = detail::set_of(
      {closed, time_wait, last_ack, sctp_shutdown_ack_sent, sctp_closed, sctp_aborted});
  if ((kEnded >> static_cast<unsigned>(state) & 1) != 0) return 0;
  if (!is_proved) return 1;
  const bool goes_on = state == established || state == sctp_established || state == udp_stream;
  return goes_on ? 3 : 2;
}

/// True if a connection of that protocol may have that state.
constexpr bool is_of(ConnectionState state, std::uint8_t protocol) {
  using enum ConnectionState;
  if (state == none) return true;
  if (protocol == kProtocolTcp) return static_cast<std::size_t>(state) < kTcpStates;
  if (protocol == kProtocolSctp) return state >= sctp_cookie_wait && state <= sctp_midstream;
  const ConnectionState first = detail::unreplied(protocol);
  const unsigned more = first == udp_unreplied ? 2 : 1;
  return state >= first && static_cast<unsigned>(state) <= static_cast<unsigned>(first) + more;
}

/// True if at least one side has sent its FIN and no RST was seen.
constexpr bool is_closing(ConnectionState state) {
  using enum ConnectionState;
  return state >= fin_wait && state <= time_wait;
}

/// Returns the state after a packet: `kAnew` if the packet begins a new connection with the same
/// key, `none` if a first packet begins no connection. `age_ms` is the connection's age, which only
/// UDP depends on. `was` must be a state of the signal's protocol.
constexpr ConnectionState next_state(ConnectionState was, Direction direction, Signal signal,
                                     std::uint8_t protocol, std::uint32_t age_ms) {
  using enum ConnectionState;
  if (signal == Signal::nothing || signal == Signal::fragment) return was;
  const auto from = static_cast<std::size_t>(direction);
  if (is_tcp(signal)) {
    return detail::kTcpTable[from][static_cast<std::size_t>(signal) - kSctpSignals]
                            [static_cast<std::size_t>(was)];
  }
  if (is_sctp(signal))
    return detail::kSctpTable[from][static_cast<std::size_t>(signal)][detail::sctp_column(was)];
  if (was == none && direction != Direction::reply) return detail::unreplied(protocol);
  if (was == none) was = detail::unreplied(protocol);
  if (was == udp && age_ms >= kStreamAfterMs) return udp_stream;
  // The states with and without a reply stand side by side.
  if (is_half_open(was) && direction != Direction::originator)
    return static_cast<ConnectionState>(static_cast<std::uint8_t>(was) + 1);
  return was;
}

namespace detail {

/// True if a connection in that state may get a packet with that signal.
constexpr bool may_meet(ConnectionState state, Signal signal) {
  using enum ConnectionState;
  if (state == none || signal == Signal::fragment) return true;
  if (is_tcp(signal)) return state <= midstream;
  return is_sctp(signal) == (state >= sctp_cookie_wait && state <= sctp_midstream) &&
         state > midstream;
}

/// A bit for each state that does not change, by age, direction and signal.
inline constexpr auto kLasting = [] {
  std::array<std::array<std::array<std::uint32_t, kSignals>, kDirections>, 2> lasting{};
  for (const bool is_old : {false, true}) {
    for (std::size_t direction = 0; direction < kDirections; ++direction) {
      for (std::size_t signal = 0; signal < kSignals; ++signal) {
        for (std::size_t state = 0; state < kConnectionStates; ++state) {
          const auto was = static_cast<ConnectionState>(state);
          if (!may_meet(was, static_cast<Signal>(signal))) continue;
          if (next_state(was, static_cast<Direction>(direction), static_cast<Signal>(signal),
                         kProtocolUdp, is_old ? kStreamAfterMs : 0) == was)
            lasting[is_old][direction][signal] |= 1U << state;
        }
      }
    }
  }
  return lasting;
}();

}  // namespace detail

/// True if a packet of that direction and signal does not change the state. `age_ms` is the time
/// since the connection began.
constexpr bool lasts(ConnectionState state, Direction direction, Signal signal,
                     std::uint32_t age_ms) {
  const auto& lasting = detail::kLasting[age_ms >= kStreamAfterMs];
  return (lasting[static_cast<std::size_t>(direction)][static_cast<std::size_t>(signal)] >>
              static_cast<unsigned>(state) &
          1) != 0;
}

/// True if a packet may be the first of a connection, or the first that is seen of it.
constexpr bool begins(Signal signal, Direction direction) {
  return next_state(ConnectionState::none, direction, signal, kProtocolTcp, 0) !=
         ConnectionState::none;
}

}  // namespace millrace
