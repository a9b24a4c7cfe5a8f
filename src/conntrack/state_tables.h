// The next state after each packet of TCP and of SCTP, as tables: of data, not of code.
#pragma once

#include <array>
#include <cstddef>

#include "conntrack/connection_state.h"
#include "core/signal.h"

namespace millrace::detail {

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
inline constexpr auto cw = ConnectionState::sctp_cookie_wait;
inline constexpr auto cs = ConnectionState::sctp_cookie_sent;
inline constexpr auto ce = ConnectionState::sctp_cookie_echoed;
inline constexpr auto ee = ConnectionState::sctp_established;
inline constexpr auto so = ConnectionState::sctp_shutdown_sent;
inline constexpr auto sd = ConnectionState::sctp_shutdown_received;
inline constexpr auto sa = ConnectionState::sctp_shutdown_ack_sent;
inline constexpr auto sc = ConnectionState::sctp_closed;
inline constexpr auto ab = ConnectionState::sctp_aborted;
inline constexpr auto sm = ConnectionState::sctp_midstream;
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

using SctpTable = std::array<std::array<ConnectionState, kSctpStates>, kSctpSignals>;

// The same for SCTP: the columns are `none` and the states of SCTP, the rows SCTP's signals. A
// side's SHUTDOWN ACK counts only after the opposite side's SHUTDOWN, so that no side alone can
// make the tracker believe that both have ended. HEARTBEAT has the row of DATA.
// clang-format off
inline constexpr std::array<SctpTable, kDirections> kSctpTable{{
  {{ // The originator's packets. An INIT on a live association changes nothing by itself: only the
     // COOKIE ECHO that follows the answer to it does (`restart`).
    //                   no  cw  cs  ce  ee  so  sd  sa  sc  ab  sm
    /* nothing       */ {no, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* data          */ {sm, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* heartbeat     */ {sm, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* cookie_ack    */ {no, cw, cs, ee, ee, so, sd, sa, sc, ab, sm},
    /* shutdown      */ {no, cw, cs, so, so, so, sd, sa, sc, ab, sm},
    /* shutdown_ack  */ {no, cw, cs, ce, ee, so, sa, sa, sc, ab, sm},
    /* shutdown_comp */ {no, cw, cs, ce, ee, so, sd, sc, sc, ab, sm},
    /* abort         */ {no, ab, ab, ab, ab, ab, ab, ab, sc, ab, ab},
    /* restart       */ {no, ce, ce, ce, ce, ce, ce, ce, ce, ce, ce},
    /* cookie_echo   */ {sm, ce, ce, ce, ee, so, sd, sa, sc, ab, sm},
    /* init_ack      */ {no, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* init          */ {cw, cw, cs, ce, ee, so, sd, sa, an, an, cw},
  }},
  {{ // Replies. With the right tag (the tracker checks that) any chunk but INIT, INIT ACK, ABORT,
     // SHUTDOWN COMPLETE and ERROR proves an association that was not seen from its beginning.
    //                   no  cw  cs  ce  ee  so  sd  sa  sc  ab  sm
    /* nothing       */ {no, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* data          */ {ee, ee, ee, ee, ee, so, sd, sa, sc, ab, ee},
    /* heartbeat     */ {ee, ee, ee, ee, ee, so, sd, sa, sc, ab, ee},
    /* cookie_ack    */ {ee, ee, ee, ee, ee, so, sd, sa, sc, ab, ee},
    /* shutdown      */ {sd, sd, sd, sd, sd, so, sd, sa, sc, ab, sd},
    /* shutdown_ack  */ {sd, sd, sd, sd, ee, sa, sd, sa, sc, ab, sd},
    /* shutdown_comp */ {no, cw, cs, ce, ee, so, sd, sc, sc, ab, sm},
    /* abort         */ {no, ab, ab, ab, ab, ab, ab, ab, sc, ab, ab},
    /* restart       */ {no, ce, ce, ce, ce, ce, ce, ce, ce, ce, ce},
    /* cookie_echo   */ {no, ce, ce, ce, ee, so, sd, sa, sc, ab, sm},
    /* init_ack      */ {no, cs, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* init          */ {no, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
  }},
  {{ // The originator's packets, if the replies do not pass here. As for TCP, progress proves the
     // association, and a packet after an ABORT shows that the ABORT was forged.
    //                   no  cw  cs  ce  ee  so  sd  sa  sc  ab  sm
    /* nothing       */ {no, cw, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* data          */ {sm, ee, ee, ee, ee, so, sd, sa, ee, ee, ee},
    /* heartbeat     */ {sm, ee, ee, ee, ee, so, sd, sa, ee, ee, ee},
    /* cookie_ack    */ {no, ee, ee, ee, ee, so, sd, sa, ee, ee, ee},
    /* shutdown      */ {no, so, so, so, so, so, sd, sa, so, so, so},
    /* shutdown_ack  */ {no, sa, sa, sa, sa, sa, sa, sa, sa, sa, sa},
    /* shutdown_comp */ {no, cw, cs, ce, ee, sc, sc, sc, sc, ab, sm},
    /* abort         */ {no, ab, ab, ab, ab, ab, ab, ab, sc, ab, ab},
    /* restart       */ {no, ce, ce, ce, ce, ce, ce, ce, ce, ce, ce},
    /* cookie_echo   */ {sm, ce, ce, ce, ee, so, sd, sa, ee, ee, ee},
    /* init_ack      */ {cs, cs, cs, ce, ee, so, sd, sa, sc, ab, sm},
    /* init          */ {cw, cw, cs, ce, ee, an, an, an, an, an, cw},
  }},
}};
// clang-format on

}  // namespace millrace::detail
