// A packet's signal: the part of its headers on which its connection's state depends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// The flags of a TCP packet, as far as states depend on them (RFC 9293, 3.5 and 3.6). All packets
/// of other protocols have the signal `packet`.
enum class Signal : std::uint8_t {
  syn,      ///< SYN without ACK
  syn_ack,  ///< SYN and ACK
  fin,      ///< FIN and ACK
  ack,      ///< ACK alone, or TCP with flags that were not captured
  rst,      ///< RST, whatever the other flags
  reopen,   ///< a SYN and ACK that answers a new SYN of a live connection; only the tracker sets it
  nothing,  ///< SYN and FIN, or none of SYN, ACK and RST: no sender sets such flags
  packet,   ///< a packet of another protocol
};
inline constexpr std::size_t kTcpSignals = 6;  // `syn` to `reopen`: TCP's states depend on these
inline constexpr std::size_t kSignals = 8;

constexpr bool is_tcp(Signal signal) { return signal != Signal::packet; }

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

}  // namespace millrace
