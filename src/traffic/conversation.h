// The life of one campus connection: its packets, their senders, sizes and times.
//
// Plain values without clock or memory of their own. README.md has the distributions.
#pragma once

#include <cstdint>

#include "traffic/frame.h"
#include "traffic/random.h"

namespace millrace {

/// The kind of a connection. It decides how many packets make a conversation whole.
enum class Purpose : std::uint8_t {
  tcp,             ///< handshake, data, FIN or RST
  tcp_refused,     ///< SYN, RST
  tcp_unanswered,  ///< SYN
  quic,
  dns,
  ntp,
  udp_unanswered,
  ping,
};

/// The first random draw for a connection. All drafts come from a random stream that has no other
/// use.
struct Draft {
  Purpose purpose = Purpose::tcp;
  std::uint32_t weight = 1;  ///< relative share of the packets beyond the minimum
};
Draft draw_draft(Random& random);
/// Returns the least number of packets that makes a conversation whole.
unsigned fewest_packets(Purpose purpose);

struct Conversation {
  Endpoint client;
  Endpoint server;
  std::uint64_t round_trip_ns = 0;
  std::uint64_t gap_ns = 0;  ///< mean gap between packets of data
  std::uint32_t packets = 0;
  std::uint32_t done = 0;
  std::uint32_t client_next = 0;  ///< the client's next sequence number
  std::uint32_t server_next = 0;  ///< the server's next sequence number
  Purpose purpose = Purpose::tcp;
  bool ipv6 = false;
  bool reset = false;  ///< true: ends with RST instead of FIN
};

/// Returns a conversation of that many packets, 1 or more, that takes about `longest_ns` at most.
/// The caller sets the client's host and port.
Conversation begin(Purpose purpose, std::uint32_t packets, std::uint64_t longest_ns,
                   Random& random);
/// Returns the next packet. Call it `packets` times.
Frame next_frame(Conversation& conversation, Random& random);
/// Returns the nanoseconds from the last packet to the next one, 1 or more.
std::uint64_t next_gap_ns(const Conversation& conversation, Random& random);

}  // namespace millrace
