// The life of one campus connection: which packet comes next, from whom, how long, how much later.
//
// Plain values without clock or memory of their own; see README.md for the distributions.
#pragma once

#include <cstdint>

#include "traffic/frame.h"
#include "traffic/random.h"

namespace millrace {

/// What a connection is for; decides how few packets make it whole.
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

/// What is drawn first, from a random stream of its own.
struct Draft {
  Purpose purpose = Purpose::tcp;
  std::uint32_t weight = 1;  ///< share of the packets beyond the fewest
};
Draft draw_draft(Random& random);
/// Packets that make a conversation whole.
unsigned fewest_packets(Purpose purpose);

struct Conversation {
  Endpoint client;
  Endpoint server;
  std::uint64_t round_trip_ns = 0;
  std::uint64_t gap_ns = 0;  ///< mean between packets of data
  std::uint32_t packets = 0;
  std::uint32_t done = 0;
  std::uint32_t client_next = 0;  ///< sequence numbers
  std::uint32_t server_next = 0;
  Purpose purpose = Purpose::tcp;
  bool ipv6 = false;
  bool reset = false;  ///< ends with RST instead of FIN
};

/// A conversation of that many packets, 1 or more, that takes about `longest_ns` at most.
Conversation begin(Purpose purpose, std::uint32_t packets, std::uint64_t longest_ns,
                   Random& random);
/// Its next packet; to be called `packets` times.
Frame next_frame(Conversation& conversation, Random& random);
/// Nanoseconds from the packet just made to the next one, 1 or more.
std::uint64_t next_gap_ns(const Conversation& conversation, Random& random);

}  // namespace millrace
