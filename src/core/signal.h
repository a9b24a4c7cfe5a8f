// What a packet tells about the life of its connection.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// Of TCP the flags that count (RFC 9293, 3.5 and 3.6); of other protocols nothing but that a
/// packet came.
enum class Signal : std::uint8_t {
  syn,      ///< SYN without ACK
  syn_ack,  ///< SYN and ACK
  fin,      ///< FIN and ACK
  ack,      ///< or TCP whose flags were not captured
  rst,
  reopen,   ///< SYN and ACK that answers a SYN with another number; the tracker tells it apart
  nothing,  ///< TCP with flags that no sender sets together
  packet,   ///< of another protocol
};
inline constexpr std::size_t kTcpSignals = 6;  // up to `reopen`: those that states depend on
inline constexpr std::size_t kSignals = 8;

constexpr bool is_tcp(Signal signal) { return signal != Signal::packet; }

/// Window scale of a SYN's sender (RFC 7323, 2.2): 1 to 14, where 1 stands for 0, too, or one of
/// these.
inline constexpr std::uint8_t kScaleUnknown = 0;  ///< not captured
inline constexpr std::uint8_t kUnscaled = 15;     ///< no such option

/// Which part of its sender's sequence a TCP packet is, and what it acknowledges of the other's.
struct Segment {
  std::uint32_t sequence = 0;      ///< of its first byte
  std::uint32_t next = 0;          ///< one past its last, SYN and FIN counted
  std::uint32_t acknowledged = 0;  ///< the next one expected; without meaning where there is no ACK
  bool acknowledges = false;
  bool is_whole = false;  ///< false: the header was not captured, nothing of this is known
  std::uint8_t window_scale = kScaleUnknown;  ///< of a SYN

  /// SEG.LEN: the data, SYN and FIN counted.
  std::uint32_t length() const { return next - sequence; }
};

}  // namespace millrace
