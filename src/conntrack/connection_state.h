// The states of a connection, and the direction of a packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace {

/// The state of a connection.
enum class ConnectionState : std::uint8_t {
  // TCP.
  none,          ///< nothing is known yet; of every protocol
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
  // SCTP.
  sctp_cookie_wait,    ///< the originator has sent its INIT
  sctp_cookie_sent,    ///< the replying side has sent its INIT ACK
  sctp_cookie_echoed,  ///< a side, in general the originator, has sent its COOKIE ECHO
  sctp_established,
  sctp_shutdown_sent,      ///< the originator has sent its SHUTDOWN
  sctp_shutdown_received,  ///< the replying side has sent its SHUTDOWN
  sctp_shutdown_ack_sent,  ///< after a side's SHUTDOWN the opposite side has sent a SHUTDOWN ACK
  sctp_closed,             ///< a SHUTDOWN COMPLETE was seen
  sctp_aborted,            ///< an ABORT was seen
  sctp_midstream,          ///< like `midstream`; also a further path, opened by a HEARTBEAT
  // Other protocols: `_unreplied` until a reply is seen or, if replies do not pass here, a second
  // packet. `udp_stream`: UDP after `kStreamAfterMs`.
  udp_unreplied,
  udp,
  udp_stream,
  icmp_unreplied,
  icmp,
  other_unreplied,
  other,
};
inline constexpr std::size_t kTcpStates = 13;   // `none` to `midstream`
inline constexpr std::size_t kSctpStates = 11;  // `none`, and `sctp_cookie_wait` to the last
inline constexpr std::size_t kConnectionStates = 30;

/// Names for lists of connections. A name does not say which side has sent the FIN.
inline constexpr std::array<std::string_view, kConnectionStates> kConnectionStateNames{
    "none",
    "syn_sent",
    "syn_sent2",
    "syn_received",
    "established",
    "fin_wait",
    "fin_wait",
    "close_wait",
    "close_wait",
    "last_ack",
    "time_wait",
    "closed",
    "midstream",
    "sctp_cookie_wait",
    "sctp_cookie_sent",
    "sctp_cookie_echoed",
    "sctp_established",
    "sctp_shutdown_sent",
    "sctp_shutdown_received",
    "sctp_shutdown_ack_sent",
    "sctp_closed",
    "sctp_aborted",
    "sctp_midstream",
    "udp_unreplied",
    "udp",
    "udp_stream",
    "icmp_unreplied",
    "icmp",
    "other_unreplied",
    "other"};
static_assert(static_cast<std::size_t>(ConnectionState::midstream) + 1 == kTcpStates);
static_assert(static_cast<std::size_t>(ConnectionState::sctp_midstream) + 2 ==
              kTcpStates + kSctpStates);
static_assert(static_cast<std::size_t>(ConnectionState::other) + 1 == kConnectionStates);

constexpr std::string_view to_string(ConnectionState state) {
  return kConnectionStateNames[static_cast<std::size_t>(state)];
}

/// The direction of a packet. `only`: the originator's direction, if the replies do not pass here.
enum class Direction : std::uint8_t { originator, reply, only };
inline constexpr std::size_t kDirections = 3;

/// A cell of the tables that is no state: the packet begins a new connection with the same key (RFC
/// 9293, 3.6.1; RFC 7857, 2).
inline constexpr ConnectionState kAnew{255};

}  // namespace millrace
