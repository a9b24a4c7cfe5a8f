// A packet's signal: the part of its headers on which its connection's state depends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// The flags of a TCP packet and the chunk of an SCTP packet, as far as states depend on them (RFC
/// 9293, 3.5 and 3.6; RFC 9260, 4). Whole packets of other protocols have the signal `packet`. The
/// functions below depend on the order.
enum class Signal : std::uint8_t {
  // SCTP. INIT, INIT ACK and SHUTDOWN COMPLETE must be alone in their packets (RFC 9260, 6.10).
  sctp_nothing,  ///< a bare ERROR, chunks that must not share a packet, a tag that must not be
  sctp_data,     ///< DATA, SACK, HEARTBEAT ACK and others, or chunks that were not captured
  sctp_heartbeat,
  sctp_cookie_ack,
  sctp_shutdown,
  sctp_shutdown_ack,
  sctp_shutdown_complete,
  sctp_abort,
  sctp_restart,  ///< a COOKIE ECHO that begins a live association again; only the tracker sets it
  sctp_cookie_echo,
  sctp_init_ack,
  sctp_init,
  // TCP.
  syn,      ///< SYN without ACK
  syn_ack,  ///< SYN and ACK
  fin,      ///< FIN and ACK
  ack,      ///< ACK alone, or TCP with flags that were not captured
  rst,      ///< RST, whatever the other flags
  reopen,   ///< a SYN and ACK that answers a new SYN of a live connection; only the tracker sets it
  nothing,  ///< SYN and FIN, or none of SYN, ACK and RST: no sender sets such flags
  packet,   ///< a packet of another protocol
  /// A later fragment, of any protocol. It keeps its connection alive, and neither begins nor
  /// changes one.
  fragment,
};
inline constexpr std::size_t kSctpSignals = 12;  // `sctp_nothing` to `sctp_init`
inline constexpr std::size_t kTcpSignals = 6;    // `syn` to `reopen`: states depend on these
inline constexpr std::size_t kSignals = 21;
static_assert(static_cast<std::size_t>(Signal::syn) == kSctpSignals);
static_assert(static_cast<std::size_t>(Signal::fragment) + 1 == kSignals);

constexpr bool is_sctp(Signal signal) { return signal < Signal::syn; }
constexpr bool is_tcp(Signal signal) { return signal >= Signal::syn && signal < Signal::packet; }

/// True if the packet begins a handshake: SYN or INIT.
constexpr bool begins_handshake(Signal signal) {
  return signal == Signal::sctp_init || signal == Signal::syn;
}

/// True if the packet may be a connection's first one where connections must be seen from their
/// beginning: a SYN, an INIT, or any packet of a protocol without a handshake. A HEARTBEAT, with
/// which an association opens a further path (RFC 9260, 5.4), is none of these.
constexpr bool begins_strictly(Signal signal) {
  return begins_handshake(signal) || signal == Signal::packet;
}

/// True if the packet may be the first one that is seen of a connection: also one in
/// mid-connection, unless it ends the connection or answers.
constexpr bool begins_loosely(Signal signal) {
  return begins_strictly(signal) || signal == Signal::ack || signal == Signal::sctp_data ||
         signal == Signal::sctp_heartbeat || signal == Signal::sctp_cookie_echo;
}

/// True if the packet may change what the tracker keeps of its connection (a mark, a repeated SYN
/// or INIT), even if the state stays.
constexpr bool concerns_marks(Signal signal) {
  return signal >= Signal::sctp_cookie_echo && signal < Signal::packet;
}

/// Window scale that a SYN's sender offers (RFC 7323, 2.2): 1 to 14, or one of the constants below.
/// A scale of 0 is stored as 1, one above 14 as 14.
inline constexpr std::uint8_t kScaleUnknown = 0;  ///< the window scale option was not captured
inline constexpr std::uint8_t kUnscaled = 15;     ///< the SYN has no window scale option

/// Sequence and acknowledgement numbers of a TCP packet.
struct Segment {
  std::uint32_t sequence = 0;  ///< sequence number of the first byte
  std::uint32_t next = 0;  ///< one past the sequence number of the last byte, SYN and FIN counted
  std::uint32_t acknowledged = 0;  ///< the sender's next expected number; valid if `acknowledges`
  bool acknowledges = false;       ///< the packet has the ACK flag
  bool is_whole = false;  ///< false: the header was not captured, and no other member is valid
  std::uint8_t window_scale = kScaleUnknown;  ///< valid for a SYN

  /// Returns SEG.LEN: the number of data bytes, SYN and FIN counted.
  std::uint32_t length() const { return next - sequence; }
};

/// Verification tags of an SCTP packet (RFC 9260, 8.5). A packet holds the tag that its receiver
/// has chosen, and has told the sender by an INIT or INIT ACK.
struct Tags {
  std::uint32_t tag = 0;       ///< the tag of the packet; 0 in an INIT
  std::uint32_t initiate = 0;  ///< the sender's own tag, in an INIT or INIT ACK
  /// The T bit of an ABORT or SHUTDOWN COMPLETE (RFC 9260, 8.5.1): its sender knows no association,
  /// and sends back the tag of the packet that it answers.
  bool reflects = false;
  bool is_whole = false;  ///< false: the tags were not captured, and no other member is valid
};

}  // namespace millrace
