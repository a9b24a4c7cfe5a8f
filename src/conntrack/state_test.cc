// The state machine, tested by scenarios in plain text: one packet a line.
#include "conntrack/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "conntrack/life.h"

namespace millrace {
namespace {

const std::map<std::string, Signal, std::less<>> kSignalNames{
    {"SYN", Signal::syn},
    {"SYN-ACK", Signal::syn_ack},
    {"FIN", Signal::fin},
    {"ACK", Signal::ack},
    {"RST", Signal::rst},
    {"NULL", Signal::nothing},
    {"packet", Signal::packet},
    {"INIT", Signal::sctp_init},
    {"INIT-ACK", Signal::sctp_init_ack},
    {"COOKIE-ECHO", Signal::sctp_cookie_echo},
    {"COOKIE-ACK", Signal::sctp_cookie_ack},
    {"DATA", Signal::sctp_data},
    {"HEARTBEAT", Signal::sctp_heartbeat},
    {"SHUTDOWN", Signal::sctp_shutdown},
    {"SHUTDOWN-ACK", Signal::sctp_shutdown_ack},
    {"SHUTDOWN-COMPLETE", Signal::sctp_shutdown_complete},
    {"ABORT", Signal::sctp_abort},
    {"RESTART", Signal::sctp_restart},
    {"ERROR", Signal::sctp_nothing}};
const std::map<std::string, Direction, std::less<>> kDirectionNames{
    {"client", Direction::originator}, {"server", Direction::reply}, {"seen", Direction::only}};

/// Plays a scenario. A line is the sender (`client`, `server`, or `seen` if only one direction is
/// seen), a signal, the next state (`another`: a new connection), and perhaps the connection's age
/// in ms.
void play(std::string_view scenario, std::uint8_t protocol = kProtocolTcp) {
  SCOPED_TRACE(scenario);
  std::istringstream lines{std::string(scenario)};
  ConnectionState state = ConnectionState::none;
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string who;
    std::string signal;
    std::string after;
    std::uint32_t ms = 0;
    if (!(words >> who >> signal >> after)) continue;
    words >> ms;
    const ConnectionState next =
        next_state(state, kDirectionNames.at(who), kSignalNames.at(signal), protocol, ms);
    EXPECT_EQ(next == kAnew ? "another" : to_string(next), after) << line;
    if (next != kAnew) state = next;
  }
}

TEST(State, HandshakeAndOrderlyEnd) {  // RFC 9293, figures 6 and 12
  play(R"(
    client SYN     syn_sent
    server SYN-ACK syn_received
    client ACK     established
    server ACK     established
    client FIN     fin_wait
    server ACK     close_wait
    server ACK     close_wait
    server FIN     last_ack
    client ACK     time_wait
    server FIN     time_wait
    client SYN     another)");
}

TEST(State, TheServerMayEndIt) {
  play(R"(
    client SYN     syn_sent
    server SYN-ACK syn_received
    client ACK     established
    server FIN     fin_wait
    server FIN     fin_wait
    client ACK     close_wait
    client ACK     close_wait
    client FIN     last_ack
    server ACK     time_wait)");
}

TEST(State, BothMayEndItAtOnce) {  // RFC 9293, figure 13
  play(R"(
    client SYN     syn_sent
    server SYN-ACK syn_received
    client ACK     established
    client FIN     fin_wait
    server FIN     last_ack
    client ACK     time_wait
    server ACK     time_wait)");
}

TEST(State, BothMayBeginAtOnce) {  // RFC 9293, figure 7
  play(R"(
    client SYN     syn_sent
    server SYN     syn_sent2
    client SYN-ACK syn_received
    server SYN-ACK syn_received
    client ACK     established)");
}

TEST(State, RepeatedPacketsAreNotTheOtherSides) {
  play(R"(
    client SYN     syn_sent
    client SYN     syn_sent
    server SYN-ACK syn_received
    server SYN-ACK syn_received
    server ACK     syn_received
    client ACK     established
    client SYN     established
    server SYN-ACK established
    client FIN     fin_wait
    client FIN     fin_wait
    client ACK     fin_wait
    server ACK     close_wait
    client FIN     close_wait)");
}

TEST(State, AResetEndsIt) {
  play(R"(
    client SYN     syn_sent
    server RST     closed
    server ACK     closed
    client SYN     another)");
  play(R"(
    client SYN     syn_sent
    server SYN-ACK syn_received
    client ACK     established
    client RST     closed
    client ACK     closed
    server SYN-ACK syn_received)");
}

TEST(State, WhatSaysNothingChangesNothing) {
  play(R"(
    client NULL    none
    client SYN     syn_sent
    client NULL    syn_sent
    server NULL    syn_sent)");
}

TEST(State, MidstreamProvesRealByAReply) {
  play(R"(
    client ACK     midstream
    client ACK     midstream
    server SYN-ACK midstream
    server ACK     established)");
  play(R"(
    client ACK     midstream
    server RST     closed)");
  play(R"(
    client ACK     midstream
    server FIN     fin_wait
    client ACK     close_wait)");
  play(R"(
    client ACK     midstream
    client SYN     syn_sent)");
}

TEST(State, AnAssociationFromInitToShutdown) {  // RFC 9260, 5.1 and 9.2
  play(R"(
    client INIT              sctp_cookie_wait
    client INIT              sctp_cookie_wait
    server INIT-ACK          sctp_cookie_sent
    client COOKIE-ECHO       sctp_cookie_echoed
    client COOKIE-ECHO       sctp_cookie_echoed
    client DATA              sctp_cookie_echoed
    server COOKIE-ACK        sctp_established
    client DATA              sctp_established
    server DATA              sctp_established
    server HEARTBEAT         sctp_established
    client INIT              sctp_established
    client SHUTDOWN-ACK      sctp_established
    client SHUTDOWN-COMPLETE sctp_established
    client SHUTDOWN          sctp_shutdown_sent
    server DATA              sctp_shutdown_sent
    client SHUTDOWN-ACK      sctp_shutdown_sent
    client SHUTDOWN-COMPLETE sctp_shutdown_sent
    server SHUTDOWN-ACK      sctp_shutdown_ack_sent
    server SHUTDOWN-ACK      sctp_shutdown_ack_sent
    client SHUTDOWN-COMPLETE sctp_closed
    client DATA              sctp_closed
    server ABORT             sctp_closed
    server INIT              sctp_closed
    client INIT              another)",
       kProtocolSctp);
}

TEST(State, TheServerMayEndAnAssociation) {
  play(R"(
    client INIT              sctp_cookie_wait
    server INIT-ACK          sctp_cookie_sent
    client COOKIE-ECHO       sctp_cookie_echoed
    server COOKIE-ACK        sctp_established
    server SHUTDOWN          sctp_shutdown_received
    server SHUTDOWN-ACK      sctp_shutdown_received
    client SHUTDOWN-ACK      sctp_shutdown_ack_sent
    server SHUTDOWN-COMPLETE sctp_closed)",
       kProtocolSctp);
}

TEST(State, BothMayBeginAnAssociationAtOnce) {  // RFC 9260, 5.2.1
  play(R"(
    client INIT              sctp_cookie_wait
    server INIT              sctp_cookie_wait
    client INIT-ACK          sctp_cookie_wait
    server INIT-ACK          sctp_cookie_sent
    server COOKIE-ECHO       sctp_cookie_echoed
    client COOKIE-ACK        sctp_established
    client COOKIE-ECHO       sctp_established)",
       kProtocolSctp);
}

TEST(State, AnAbortEndsAnAssociation) {
  play(R"(
    client INIT              sctp_cookie_wait
    server ABORT             sctp_aborted
    server INIT-ACK          sctp_aborted
    client INIT              another)",
       kProtocolSctp);
  play(R"(
    client INIT              sctp_cookie_wait
    server INIT-ACK          sctp_cookie_sent
    client COOKIE-ECHO       sctp_cookie_echoed
    server COOKIE-ACK        sctp_established
    client SHUTDOWN          sctp_shutdown_sent
    client ABORT             sctp_aborted
    client RESTART           sctp_cookie_echoed
    server COOKIE-ACK        sctp_established)",
       kProtocolSctp);
}

TEST(State, AnAssociationMayBeMetMidstream) {
  for (const char* const first : {"DATA", "HEARTBEAT", "COOKIE-ECHO"}) {
    play("client " + std::string(first) + R"( sctp_midstream
    client DATA              sctp_midstream
    client SHUTDOWN          sctp_midstream
    server INIT-ACK          sctp_midstream
    server HEARTBEAT         sctp_established)",
         kProtocolSctp);
  }
  play(R"(
    client HEARTBEAT         sctp_midstream
    client INIT              sctp_cookie_wait
    server DATA              sctp_established)",
       kProtocolSctp);
  play(R"(
    client ERROR             none
    server SHUTDOWN          sctp_shutdown_received
    client SHUTDOWN-ACK      sctp_shutdown_ack_sent)",
       kProtocolSctp);
}

TEST(State, OneDirectionOfAnAssociationShowsItselfByItsProgress) {
  play(R"(
    seen INIT              sctp_cookie_wait
    seen COOKIE-ECHO       sctp_cookie_echoed
    seen DATA              sctp_established
    seen ABORT             sctp_aborted
    seen DATA              sctp_established
    seen SHUTDOWN          sctp_shutdown_sent
    seen SHUTDOWN-COMPLETE sctp_closed
    seen INIT              another)",
       kProtocolSctp);
  play(R"(
    seen INIT-ACK          sctp_cookie_sent
    seen COOKIE-ACK        sctp_established
    seen SHUTDOWN-ACK      sctp_shutdown_ack_sent)",
       kProtocolSctp);
}

TEST(State, OnlyABeginningBeginsStrictly) {
  for (std::size_t at = 0; at < kSignals; ++at) {
    const auto signal = static_cast<Signal>(at);
    const bool is_first =
        signal == Signal::syn || signal == Signal::sctp_init || signal == Signal::packet;
    EXPECT_EQ(begins_strictly(signal), is_first) << at;
    EXPECT_EQ(begins_handshake(signal), is_first && signal != Signal::packet) << at;
    EXPECT_EQ(is_tcp(signal) + is_sctp(signal) + (signal >= Signal::packet), 1) << at;
    EXPECT_EQ(begins_loosely(signal), begins(signal, Direction::originator)) << at;
  }
}

TEST(State, WhatEndsOrAnswersBeginsNothing) {
  using enum Signal;
  for (const Signal signal : {rst, fin, nothing, syn_ack, sctp_abort, sctp_shutdown_ack,
                              sctp_shutdown_complete, sctp_init_ack, sctp_cookie_ack, sctp_nothing})
    EXPECT_FALSE(begins(signal, Direction::originator));
  for (const Signal signal : {rst, syn, nothing, syn_ack, sctp_abort, sctp_init, sctp_init_ack,
                              sctp_shutdown_complete, sctp_nothing})
    EXPECT_FALSE(begins(signal, Direction::reply));
  for (const Signal signal : {Signal::rst, Signal::fin, Signal::nothing})
    EXPECT_FALSE(begins(signal, Direction::only));
  for (const Signal signal : {Signal::syn, Signal::syn_ack, Signal::ack, Signal::packet})
    EXPECT_TRUE(begins(signal, Direction::only));
}

TEST(State, AReplyProvesWhatWasNotTracked) {
  play(R"(
    server ACK     established
    client ACK     established)");
  play(R"(
    server FIN     fin_wait
    client ACK     close_wait)");
  play(R"(
    server packet  udp)",
       kProtocolUdp);
}

TEST(State, WhatProvesAConnectionIsNoGuess) {
  using enum ConnectionState;
  using enum Direction;
  EXPECT_TRUE(proves(syn_received, originator, established));
  EXPECT_TRUE(proves(midstream, reply, established));
  EXPECT_TRUE(proves(midstream, reply, fin_wait_reply));
  EXPECT_TRUE(proves(udp_unreplied, reply, udp));
  EXPECT_TRUE(proves(syn_sent, only, established));
  EXPECT_TRUE(proves(fin_wait, reply, close_wait)) << "a reply after an unproved FIN";
  EXPECT_FALSE(proves(midstream, originator, fin_wait));
  EXPECT_FALSE(proves(syn_sent, reply, syn_received));
  EXPECT_FALSE(proves(syn_sent, originator, closed));
  EXPECT_FALSE(proves(midstream, reply, closed));
  EXPECT_FALSE(proves(fin_wait, originator, fin_wait));
  EXPECT_TRUE(proves(sctp_cookie_sent, originator, sctp_cookie_echoed));
  EXPECT_TRUE(proves(sctp_midstream, reply, sctp_established));
  EXPECT_FALSE(proves(sctp_cookie_wait, reply, sctp_cookie_sent));
  EXPECT_FALSE(proves(sctp_cookie_wait, reply, sctp_aborted));
}

TEST(State, WhatBothHaveEndedIsNotInUse) {
  using enum ConnectionState;
  for (const Direction from : {Direction::originator, Direction::reply, Direction::only}) {
    for (const ConnectionState state : {established, close_wait, last_ack, closed, udp_stream,
                                        sctp_cookie_echoed, sctp_shutdown_received, sctp_aborted})
      EXPECT_TRUE(is_in_use(state, from)) << to_string(state);
    for (const ConnectionState state :
         {none, syn_received, midstream, time_wait, udp_unreplied, sctp_cookie_sent, sctp_midstream,
          sctp_shutdown_ack_sent, sctp_closed})
      EXPECT_FALSE(is_in_use(state, from)) << to_string(state);
  }
  EXPECT_TRUE(is_in_use(fin_wait, Direction::originator));
  EXPECT_TRUE(is_in_use(sctp_shutdown_sent, Direction::originator));
  EXPECT_FALSE(is_in_use(sctp_shutdown_sent, Direction::only));
  EXPECT_FALSE(is_in_use(fin_wait, Direction::only)) << "the replying side's FIN passes elsewhere";
}

TEST(Standing, HoldsStateAndProofUntilItsEnd) {
  for (std::size_t state = 0; state < kConnectionStates; ++state) {
    for (const Proof proof : {Proof::none, Proof::service, Proof::service_and_source}) {
      const Standing standing(static_cast<ConnectionState>(state), proof);
      for (const Standing it : {standing, standing.ended()}) {
        EXPECT_EQ(it.state(), static_cast<ConnectionState>(state));
        EXPECT_EQ(it.proof(), proof);
      }
      EXPECT_FALSE(standing.has_ended());
      EXPECT_TRUE(standing.ended().has_ended());
      EXPECT_NE(standing, standing.ended());
    }
  }
}

TEST(State, WhatGoesOnIsMissedMost) {
  using enum ConnectionState;
  EXPECT_LT(rank(time_wait, true), rank(syn_sent, false));
  EXPECT_LT(rank(syn_received, false), rank(close_wait, true));
  EXPECT_LT(rank(fin_wait, false), rank(fin_wait, true));
  EXPECT_LT(rank(udp_unreplied, false), rank(udp, true));
  EXPECT_LT(rank(udp, true), rank(udp_stream, true));
  EXPECT_EQ(rank(established, true), 3U);
  EXPECT_EQ(rank(sctp_established, true), 3U);
  EXPECT_LT(rank(sctp_shutdown_sent, true), rank(sctp_established, true));
  EXPECT_EQ(rank(sctp_aborted, true), 0U);
}

TEST(State, AnAnswerIsOneOfTheReplyingSide) {
  using enum ConnectionState;
  for (const ConnectionState state :
       {none, syn_sent, sctp_cookie_wait, udp_unreplied, icmp_unreplied, other_unreplied})
    EXPECT_FALSE(is_answered(state)) << to_string(state);
  for (const ConnectionState state : {syn_sent2, syn_received, midstream, closed, sctp_cookie_sent,
                                      sctp_midstream, sctp_aborted, udp, other})
    EXPECT_TRUE(is_answered(state)) << to_string(state);
}

TEST(State, EachStateIsOfOneProtocol) {
  constexpr std::array<std::uint8_t, 5> kProtocols{kProtocolTcp, kProtocolSctp, kProtocolUdp,
                                                   kProtocolIcmp, kProtocolGre};
  for (std::size_t at = 1; at < kConnectionStates; ++at) {
    const auto is_its = [at](std::uint8_t of) {
      return is_of(static_cast<ConnectionState>(at), of);
    };
    EXPECT_EQ(std::ranges::count_if(kProtocols, is_its), 1) << kConnectionStateNames[at];
  }
}

TEST(State, OneDirectionShowsItselfByItsProgress) {
  play(R"(
    seen SYN     syn_sent
    seen SYN     syn_sent
    seen ACK     established
    seen FIN     fin_wait
    seen ACK     fin_wait
    seen SYN     another)");
  play(R"(
    seen SYN-ACK syn_received
    seen ACK     established
    seen RST     closed
    seen ACK     established)");
  play(R"(
    seen ACK     midstream
    seen ACK     established)");
}

TEST(State, DatagramsAreUnrepliedRepliedOrAStream) {
  play(R"(
    client packet udp_unreplied
    client packet udp_unreplied 9000
    server packet udp           9000
    client packet udp           1999
    client packet udp_stream    2000
    client packet udp_stream    0)",
       kProtocolUdp);
  play(R"(
    seen packet udp_unreplied
    seen packet udp
    seen packet udp_stream 2000)",
       kProtocolUdp);
}

TEST(State, OtherProtocolsAreUnrepliedOrReplied) {
  play(R"(
    client packet icmp_unreplied
    server packet icmp
    client packet icmp 9000)",
       kProtocolIcmpV6);
  play(R"(
    client packet other_unreplied
    server packet other)",
       47);
}

TEST(State, WhatLastsIsNotChangedByAnyPacket) {
  for (std::size_t at = 0; at < kConnectionStates; ++at) {
    const auto state = static_cast<ConnectionState>(at);
    for (const Direction direction : {Direction::originator, Direction::reply, Direction::only}) {
      for (const auto& [name, signal] : kSignalNames) {
        if (!detail::may_meet(state, signal)) continue;
        for (const std::uint32_t age_ms : {0U, kStreamAfterMs - 1, kStreamAfterMs, UINT32_MAX}) {
          bool changes = false;
          for (const std::uint8_t protocol : {kProtocolTcp, kProtocolUdp, kProtocolGre})
            changes |= next_state(state, direction, signal, protocol, age_ms) != state;
          EXPECT_EQ(lasts(state, direction, signal, age_ms), !changes)
              << to_string(state) << ' ' << name << ' ' << age_ms;
        }
      }
    }
  }
}

// If a reply opens a connection, the tracker follows the reply twice: when it opens the connection,
// and with the reply's burst. The state must not change twice.
TEST(State, AReplyFollowedTwiceIsFollowedOnce) {
  for (std::size_t at = 0; at < kConnectionStates; ++at) {
    for (const auto& [name, signal] : kSignalNames) {
      if (!detail::may_meet(static_cast<ConnectionState>(at), signal)) continue;
      const auto once =
          next_state(static_cast<ConnectionState>(at), Direction::reply, signal, kProtocolUdp, 0);
      EXPECT_EQ(next_state(once, Direction::reply, signal, kProtocolUdp, 0), once)
          << kConnectionStateNames[at] << ' ' << name;
    }
  }
}

TEST(State, EveryStepOfTheTablesIsToAState) {
  for (std::size_t at = 0; at < kConnectionStates; ++at) {
    const auto state = static_cast<ConnectionState>(at);
    for (const Direction direction : {Direction::originator, Direction::reply, Direction::only}) {
      for (const auto& [name, signal] : kSignalNames) {
        if (signal == Signal::packet || !detail::may_meet(state, signal)) continue;
        const std::uint8_t protocol = is_sctp(signal) ? kProtocolSctp : kProtocolTcp;
        const auto next = next_state(state, direction, signal, protocol, 0);
        EXPECT_TRUE(next == kAnew || is_of(next, protocol)) << name;
        EXPECT_TRUE(at == 0 || next != ConnectionState::none) << name;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
