// The states of a connection, and the next state after each packet: as a table.
//
// The TCP states are those of RFC 9293, 3.3.2, as seen from between the ends, and of Linux's
// nf_conntrack_proto_tcp.c. Unlike Linux's states, these say which side has sent its FIN, so that a
// repeated FIN is not taken for the opposite side's FIN. The tracker checks sequence numbers before
// it consults the table (tracker_following.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/protocol.h"
#include "core/signal.h"

namespace millrace {

/// The state of a connection.
enum class ConnectionState : std::uint8_t {
  // TCP.
  none,          ///< nothing is known yet
  syn_sent,      ///< the originator has sent its SYN
  syn_sent2,     ///< both sides have sent a SYN (simultaneous open)
  syn_received,  ///< a side, in general the replying one, has sent SYN and ACK
  established,
  fin_wait,          ///< the originator has sent its FIN
  fin_wait_reply,    ///< the replying side has sent its FIN
  close_wait,        ///< after the originator's FIN the replying side has sent an ACK
  close_wait_reply,  ///< after the replying side's FIN the originator has sent an ACK
  last_ack,          ///< both sides have sent their FIN
  time_wait,         ///< after both FINs one of the sides has sent an ACK
  closed,            ///< a RST was seen
  midstream,         ///< first seen in mid-connection; nothing has proved yet that it is real
  // Other protocols: `_unreplied` until a reply is seen or, if replies do not pass here, a second
  // packet. `udp_stream`: UDP after `kStreamAfterMs`.
  udp_unreplied,
  udp,
  udp_stream,
  sctp_unreplied,
  sctp,
  icmp_unreplied,
  icmp,
  other_unreplied,
  other,
};
inline constexpr std::size_t kTcpStates = 13;
inline constexpr std::size_t kConnectionStates = 22;

/// Names for lists of connections. A name does not say which side has sent the FIN.
inline constexpr std::array<std::string_view, kConnectionStates> kConnectionStateNames{
    "none",           "syn_sent",       "syn_sent2",
    "syn_received",   "established",    "fin_wait",
    "fin_wait",       "close_wait",     "close_wait",
    "last_ack",       "time_wait",      "closed",
    "midstream",      "udp_unreplied",  "udp",
    "udp_stream",     "sctp_unreplied", "sctp",
    "icmp_unreplied", "icmp",           "other_unreplied",
    "other"};
static_assert(static_cast<std::size_t>(ConnectionState::midstream) + 1 == kTcpStates);
static_assert(static_cast<std::size_t>(ConnectionState::other) + 1 == kConnectionStates);

constexpr std::string_view to_string(ConnectionState state) {
  return kConnectionStateNames[static_cast<std::size_t>(state)];
}

/// The direction of a packet. `only`: the originator's direction, if the replies do not pass here.
enum class Direction : std::uint8_t { originator, reply, only };
inline constexpr std::size_t kDirections = 3;

/// A cell of the table that is no state: the packet begins a new connection with the same key (RFC
/// 9293, 3.6.1; RFC 7857, 2).
inline constexpr ConnectionState kAnew{255};

namespace detail {

// Names of two letters for the states, so that the table can be read as one.
// NOLINTBEGIN(readability-identifier-naming)
inline constexpr auto no = ConnectionState::none;
inline constexpr auto ss = ConnectionState::syn_sent;
inline constexpr auto s2 = ConnectionState::syn_sent2;
inline constexpr auto sr = ConnectionState::syn_received;
inline constexpr auto es = ConnectionState::established;
inline constexpr auto fo = ConnectionState::fin_wait;
inline constexpr auto fr = ConnectionState::fin_wait_reply;
inline constexpr auto co = ConnectionState::close_wait;
inline constexpr auto cr = ConnectionState::close_wait_reply;
inline constexpr auto la = ConnectionState::last_ack;
inline constexpr auto tw = ConnectionState::time_wait;
inline constexpr auto cl = ConnectionState::closed;
inline constexpr auto ms = ConnectionState::midstream;
inline constexpr auto an = kAnew;
// NOLINTEND(readability-identifier-naming)

using TcpTable = std::array<std::array<ConnectionState, kTcpStates>, kTcpSignals>;

// A row for each signal, a column for the present state; the cells are the next state. In the
// column of `none`, `no` means that the packet opens no connection.
// clang-format off
inline constexpr std::array<TcpTable, kDirections> kTcpTable{{
  {{ // The originator's packets.
    //             no  ss  s2  sr  es  fo  fr  co  cr  la  tw  cl  ms
    /* syn     */ {ss, ss, s2, sr, es, fo, fr, co, cr, la, an, an, ss},
    /* syn_ack */ {no, ss, sr, sr, es, fo, fr, co, cr, la, tw, cl, ms},
    /* fin     */ {no, ss, s2, fo, fo, fo, la, co, la, la, tw, cl, fo},
    /* ack     */ {ms, ss, s2, es, es, fo, cr, co, cr, tw, tw, cl, ms},
    /* rst     */ {no, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl},
    /* reopen  */ {no, ss, s2, sr, es, fo, fr, co, cr, la, tw, cl, ms},
  }},
  {{ // Replies. In `none`, `syn_sent` and `midstream` a reply with data or a FIN (the tracker
     // checks that) proves a connection that was not seen from its beginning: only the receiver of
     // the originator's packets can send such a reply. A SYN and ACK in `time_wait` or `closed`
     // answers a SYN that was taken for an old one.
    //             no  ss  s2  sr  es  fo  fr  co  cr  la  tw  cl  ms
    /* syn     */ {no, s2, s2, sr, es, fo, fr, co, cr, la, tw, cl, ms},
    /* syn_ack */ {no, sr, sr, sr, es, fo, fr, co, cr, la, sr, sr, ms},
    /* fin     */ {fr, fr, s2, fr, fr, la, fr, la, cr, la, tw, cl, fr},
    /* ack     */ {es, es, s2, sr, es, co, fr, co, cr, tw, tw, cl, es},
    /* rst     */ {no, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl},
    /* reopen  */ {no, sr, sr, sr, sr, sr, sr, sr, sr, sr, sr, sr, sr},
  }},
  {{ // The originator's packets, if the replies do not pass here. The progress of the connection
     // proves it; a packet after a RST shows that the sender of the packet did not send the RST.
    //             no  ss  s2  sr  es  fo  fr  co  cr  la  tw  cl  ms
    /* syn     */ {ss, ss, s2, sr, es, an, fr, co, cr, la, an, an, ss},
    /* syn_ack */ {sr, sr, sr, sr, es, fo, fr, co, cr, la, tw, cl, ms},
    /* fin     */ {no, fo, fo, fo, fo, fo, fr, co, cr, la, tw, fo, fo},
    /* ack     */ {ms, es, es, es, es, fo, fr, co, cr, la, tw, es, es},
    /* rst     */ {no, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl, cl},
    /* reopen  */ {no, ss, s2, sr, es, fo, fr, co, cr, la, tw, cl, ms},
  }},
}};
// clang-format on

/// Returns the first state of a connection of a protocol other than TCP.
constexpr ConnectionState unreplied(std::uint8_t protocol) {
  switch (protocol) {
    case kProtocolUdp:
      return ConnectionState::udp_unreplied;
    case kProtocolSctp:
      return ConnectionState::sctp_unreplied;
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

/// True if only the beginning of a handshake or a conversation was seen, and in `midstream`.
constexpr bool is_half_open(ConnectionState state) {
  using enum ConnectionState;
  return state <= syn_received || state == midstream || state == udp_unreplied ||
         state == sctp_unreplied || state == icmp_unreplied || state == other_unreplied;
}

/// True if the replying side has sent a packet, or may have, as in `midstream` and `closed`. False
/// in `none`, `syn_sent` and the `_unreplied` states.
constexpr bool is_answered(ConnectionState state) {
  using enum ConnectionState;
  const bool is_open_handshake = state == syn_received || state == syn_sent2;
  return !is_half_open(state) || is_open_handshake || state == midstream;
}

/// True if a packet of that direction that changes the state from `was` to `next` proves that its
/// connection is real. A RST proves nothing; nor does an originator's FIN in `midstream`, as its
/// sender may have made up the whole connection.
constexpr bool proves(ConnectionState was, Direction from, ConnectionState next) {
  using enum ConnectionState;
  const bool is_made_up = was == midstream && from == Direction::originator;
  return next != was && next != closed && !is_half_open(next) && !is_made_up;
}

/// True if a proved connection in that state still counts for limits. False if both sides, or the
/// only side that is seen, have ended the connection, or if the connection begins again. True after
/// a RST, too.
constexpr bool is_in_use(ConnectionState state, Direction from) {
  using enum ConnectionState;
  const bool has_ended = state == time_wait || (state == fin_wait && from == Direction::only);
  return !is_half_open(state) && !has_ended;
}

/// Returns the rank of a live connection, 0 to 3; the lowest is evicted first. 0: both sides, or a
/// RST, have ended the connection; 1: no packet has proved it; 2: the connection is closing, or may
/// be a single query; 3: the connection goes on.
constexpr unsigned rank(ConnectionState state, bool is_proved) {
  using enum ConnectionState;
  if (state == closed || state == time_wait || state == last_ack) return 0;
  if (!is_proved) return 1;
  const bool goes_on = state == established || state == udp_stream || state == sctp;
  return goes_on ? 3 : 2;
}

/// True if a connection of that protocol may have that state.
constexpr bool is_of(ConnectionState state, std::uint8_t protocol) {
  using enum ConnectionState;
  if (state == none) return true;
  if (protocol == kProtocolTcp) return static_cast<std::size_t>(state) < kTcpStates;
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
/// key, `none` if a first packet begins no connection. `age_ms` is the connection's age.
constexpr ConnectionState next_state(ConnectionState was, Direction direction, Signal signal,
                                     std::uint8_t protocol, std::uint32_t age_ms) {
  using enum ConnectionState;
  if (signal == Signal::nothing) return was;
  if (signal != Signal::packet) {
    return detail::kTcpTable[static_cast<std::size_t>(direction)][static_cast<std::size_t>(signal)]
                            [static_cast<std::size_t>(was)];
  }
  if (was == none && direction != Direction::reply) return detail::unreplied(protocol);
  if (was == none) was = detail::unreplied(protocol);
  if (was == udp && age_ms >= kStreamAfterMs) return udp_stream;
  // The states with and without a reply stand side by side.
  if (is_half_open(was) && direction != Direction::originator)
    return static_cast<ConnectionState>(static_cast<std::uint8_t>(was) + 1);
  return was;
}

namespace detail {

/// A bit for each state that does not change, by age, direction and signal.
inline constexpr auto kLasting = [] {
  std::array<std::array<std::array<std::uint32_t, kSignals>, kDirections>, 2> lasting{};
  for (const bool is_old : {false, true}) {
    for (std::size_t direction = 0; direction < kDirections; ++direction) {
      for (std::size_t signal = 0; signal < kSignals; ++signal) {
        for (std::size_t state = 0; state < kConnectionStates; ++state) {
          if (signal < kTcpSignals && state >= kTcpStates) continue;  // not a state of TCP
          const auto was = static_cast<ConnectionState>(state);
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
