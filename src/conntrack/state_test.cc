// The state machine, tested by scenarios in plain text: one packet a line.
#include "conntrack/state.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "conntrack/life.h"

namespace millrace {
namespace {

const std::map<std::string, Signal, std::less<>> kSignalNames{
    {"SYN", Signal::syn},      {"SYN-ACK", Signal::syn_ack}, {"FIN", Signal::fin},
    {"ACK", Signal::ack},      {"RST", Signal::rst},         {"NULL", Signal::nothing},
    {"packet", Signal::packet}};
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

TEST(State, WhatEndsOrAnswersBeginsNothing) {
  for (const Signal signal : {Signal::rst, Signal::fin, Signal::nothing, Signal::syn_ack})
    EXPECT_FALSE(begins(signal, Direction::originator));
  for (const Signal signal : {Signal::rst, Signal::syn, Signal::nothing, Signal::syn_ack})
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
}

TEST(State, WhatBothHaveEndedIsNotInUse) {
  using enum ConnectionState;
  for (const Direction from : {Direction::originator, Direction::reply, Direction::only}) {
    for (const ConnectionState state : {established, close_wait, last_ack, closed, udp_stream})
      EXPECT_TRUE(is_in_use(state, from)) << to_string(state);
    for (const ConnectionState state : {none, syn_received, midstream, time_wait, udp_unreplied})
      EXPECT_FALSE(is_in_use(state, from)) << to_string(state);
  }
  EXPECT_TRUE(is_in_use(fin_wait, Direction::originator));
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
    client packet sctp_unreplied
    server packet sctp)",
       kProtocolSctp);
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
        const bool is_of_tcp = at < kTcpStates;
        if (at != 0 && is_of_tcp != is_tcp(signal)) continue;
        for (const std::uint32_t age_ms : {0U, kStreamAfterMs - 1, kStreamAfterMs, UINT32_MAX}) {
          bool changes = false;
          for (const std::uint8_t protocol : {kProtocolTcp, kProtocolUdp, kProtocolSctp})
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
      if (at != 0 && (at < kTcpStates) != is_tcp(signal)) continue;
      const auto once =
          next_state(static_cast<ConnectionState>(at), Direction::reply, signal, kProtocolUdp, 0);
      EXPECT_EQ(next_state(once, Direction::reply, signal, kProtocolUdp, 0), once)
          << kConnectionStateNames[at] << ' ' << name;
    }
  }
}

TEST(State, EveryStepOfTheTableIsToAState) {
  for (std::size_t state = 0; state < kTcpStates; ++state) {
    for (const Direction direction : {Direction::originator, Direction::reply, Direction::only}) {
      for (const auto& [name, signal] : kSignalNames) {
        if (signal == Signal::packet) continue;
        const auto next =
            next_state(static_cast<ConnectionState>(state), direction, signal, kProtocolTcp, 0);
        EXPECT_TRUE(next == kAnew || static_cast<std::size_t>(next) < kTcpStates);
        EXPECT_TRUE(state == 0 || next != ConnectionState::none) << name;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
