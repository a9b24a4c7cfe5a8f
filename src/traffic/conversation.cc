#include "traffic/conversation.h"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

using From = Endpoint::Side;

/// The number of flows, in a million on a campus's Internet link, that are longer than `packets`
/// packets. Source: Jurkiewicz, Rzym, Borylo, "Flow length and size distributions in campus
/// Internet traffic", Computer Communications 167, 2021, data set agh_2015.
struct LongerThan {
  std::uint64_t packets;
  std::uint64_t flows;
};
constexpr std::array<LongerThan, 10> kLonger{{{1, 521'674},
                                              {2, 346'579},
                                              {4, 251'067},
                                              {8, 158'681},
                                              {10, 134'914},
                                              {100, 26'522},
                                              {1'000, 5'456},
                                              {10'000, 1'078},
                                              {100'000, 104},
                                              {1'000'000, 2}}};

struct Knot {
  std::uint64_t length;     // log2 of the number of packets, in units of 2^-32
  std::uint64_t survivors;  // log2 of how many of 2^64 flows are longer, in units of 2^-32
};

const std::array<Knot, kLonger.size()>& knots() {
  static const auto all = [] {
    std::array<Knot, kLonger.size()> k{};
    for (std::size_t i = 0; i < k.size(); ++i) {
      k[i] = {log2_q32(kLonger[i].packets), log2_q32(UINT64_MAX / 1'000'000 * kLonger[i].flows)};
    }
    return k;
  }();
  return all;
}

/// Draws the number of packets of a flow, by a power law between each two published points.
std::uint32_t draw_length(Random& random) {
  const auto& knot = knots();
  const std::uint64_t survivors = log2_q32(random() | 1);
  if (survivors >= knot.front().survivors) return 1;
  if (survivors < knot.back().survivors) return static_cast<std::uint32_t>(kLonger.back().packets);
  std::size_t i = 0;
  while (survivors < knot[i + 1].survivors) ++i;
  const std::uint64_t part = knot[i].survivors - survivors;
  const std::uint64_t whole = knot[i].survivors - knot[i + 1].survivors;
  const auto log =
      knot[i].length +
      static_cast<std::uint64_t>(Uint128{knot[i + 1].length - knot[i].length} * part / whole);
  return static_cast<std::uint32_t>(exp2_q32(log) >> 32) + 1;
}

Purpose draw_purpose(Random& random) {
  const std::uint64_t p = random.below(1000);
  if (p < 490) return Purpose::tcp;
  if (p < 515) return Purpose::tcp_refused;
  if (p < 540) return Purpose::tcp_unanswered;
  if (p < 710) return Purpose::quic;
  if (p < 910) return Purpose::dns;
  if (p < 940) return Purpose::ntp;
  if (p < 970) return Purpose::udp_unanswered;
  return Purpose::ping;
}

bool can_grow(Purpose purpose) {
  return purpose == Purpose::tcp || purpose == Purpose::quic || purpose == Purpose::ping;
}

/// Draws a server. Popularity falls with rank as r^-0.8 (Breslau et al., "Web caching and Zipf-like
/// distributions", INFOCOM 1999). The inverse of that cumulative distribution is a fifth power; the
/// number of servers is 5^5 - 1.
std::uint32_t draw_server(Random& random) {
  const std::uint64_t one = std::uint64_t{1} << 20;
  const std::uint64_t root = random.between(one, 5 * one - 1);
  std::uint64_t power = root;
  for (int i = 0; i < 4; ++i) power = power * root >> 20;
  return static_cast<std::uint32_t>(power >> 20) - 1;
}

std::uint16_t draw_server_port(Purpose purpose, Random& random) {
  switch (purpose) {
    case Purpose::quic:
      return 443;
    case Purpose::dns:
      return 53;
    case Purpose::ntp:
      return 123;
    case Purpose::ping:
      return 0;
    default:
      break;
  }
  constexpr std::array<std::uint16_t, 6> kOthers{22, 25, 110, 993, 3389, 8080};
  const std::uint64_t p = random.below(100);
  if (p < 75) return 443;
  if (p < 90) return 80;
  return kOthers[random.below(kOthers.size())];
}

/// Direction and size of a packet of data. Three sizes are common, as measured ever since Thompson,
/// Miller, Wilder, "Wide-area Internet traffic patterns and characteristics", IEEE Network 11(6),
/// 1997: bare acknowledgements, about 576 bytes, full.
struct Data {
  From from;
  std::uint16_t payload;
};

std::uint16_t bytes_between(Random& random, unsigned low, unsigned high) {
  return static_cast<std::uint16_t>(random.between(low, high));
}

Data draw_tcp_data(const Conversation& c, Random& random) {
  const std::uint16_t full = c.ipv6 ? 1440 : 1460;
  if (c.done == 3) return {From::client, bytes_between(random, 200, 700)};  // the request
  const std::uint64_t p = random.below(100);
  if (p < 50) return {From::server, full};
  if (p < 58) return {From::server, 536};
  if (p < 62) return {From::server, bytes_between(random, 1, full)};
  if (p < 68) return {From::client, bytes_between(random, 100, 700)};
  return {p < 94 ? From::client : From::server, 0};
}

Data draw_quic_data(const Conversation& c, Random& random) {
  constexpr std::uint16_t kFull = 1250;
  if (c.done < 2) return {c.done == 0 ? From::client : From::server, 1200};  // RFC 9000, 14.1
  const std::uint64_t p = random.below(100);
  if (p < 55) return {From::server, kFull};
  if (p < 65) return {From::server, bytes_between(random, 30, kFull)};
  if (p < 72) return {From::client, bytes_between(random, 100, 600)};
  return {From::client, bytes_between(random, 25, 50)};
}

Data draw_udp_data(const Conversation& c, Random& random) {
  const bool asks = c.done % 2 == 0;
  const From from = asks ? From::client : From::server;
  switch (c.purpose) {
    case Purpose::quic:
      return draw_quic_data(c, random);
    case Purpose::ntp:
      return {from, 48};
    case Purpose::dns:
      return {from, asks ? bytes_between(random, 28, 60) : bytes_between(random, 60, 400)};
    default:
      return {From::client, bytes_between(random, 20, 200)};
  }
}

Frame frame_of(const Conversation& c, From from) {
  Frame frame;
  frame.ipv6 = c.ipv6;
  frame.from = from == From::client ? c.client : c.server;
  frame.to = from == From::client ? c.server : c.client;
  return frame;
}

Frame tcp_frame(Conversation& c, From from, unsigned flags, std::uint16_t payload) {
  Frame frame = frame_of(c, from);
  std::uint32_t& own = from == From::client ? c.client_next : c.server_next;
  const std::uint32_t other = from == From::client ? c.server_next : c.client_next;
  frame.flags = static_cast<std::uint8_t>(flags);
  frame.payload = payload;
  frame.sequence = own;
  frame.acknowledgement = (flags & Frame::kAck) != 0 ? other : 0;
  own += payload + ((flags & (Frame::kSyn | Frame::kFin)) != 0 ? 1U : 0U);
  return frame;
}

/// Least number of packets of a connection that ends with FINs: three of the handshake, three of
/// the end.
constexpr std::uint32_t kShortestWithFin = 6;

Frame next_tcp(Conversation& c, Random& random) {
  using enum Frame::Flags;
  const std::uint32_t left = c.packets - c.done;
  if (c.done == 0) return tcp_frame(c, From::client, kSyn, 0);
  if (c.packets == 2) {  // a closed port answers with sequence number 0 (RFC 9293, 3.10.7.1)
    c.server_next = 0;
    return tcp_frame(c, From::server, kRst | kAck, 0);
  }
  if (c.done == 1) return tcp_frame(c, From::server, kSyn | kAck, 0);
  const bool resets = c.reset || c.packets < kShortestWithFin;
  if (resets && left == 1) {
    const bool client = c.packets < kShortestWithFin || c.packets % 2 == 0;
    return tcp_frame(c, client ? From::client : From::server, kRst | kAck, 0);
  }
  if (c.done == 2) return tcp_frame(c, From::client, kAck, 0);
  if (!resets && left == 3) return tcp_frame(c, From::client, kFin | kAck, 0);
  if (!resets && left == 2) return tcp_frame(c, From::server, kFin | kAck, 0);
  if (!resets && left == 1) return tcp_frame(c, From::client, kAck, 0);
  const Data data = draw_tcp_data(c, random);
  return tcp_frame(c, data.from, kAck | (data.payload != 0 ? kPsh : 0), data.payload);
}

Frame next_udp(Conversation& c, Random& random) {
  const Data data = draw_udp_data(c, random);
  Frame frame = frame_of(c, data.from);
  frame.protocol = Frame::Protocol::udp;
  frame.payload = data.payload;
  return frame;
}

Frame next_ping(Conversation& c) {
  Frame frame = frame_of(c, c.done % 2 == 0 ? From::client : From::server);
  frame.protocol = Frame::Protocol::icmp_echo;
  frame.sequence = c.done / 2 + 1;
  frame.payload = 56;
  return frame;
}

bool is_tcp(Purpose purpose) { return purpose <= Purpose::tcp_unanswered; }

}  // namespace

Draft draw_draft(Random& random) {
  const Purpose purpose = draw_purpose(random);
  const std::uint32_t length = draw_length(random);
  // + 1 gives a flow of one packet a weight above zero.
  return {purpose, can_grow(purpose) ? 64 * (length - 1) + 1 : 0};
}

unsigned fewest_packets(Purpose purpose) {
  switch (purpose) {
    case Purpose::tcp:
      return 8;  // handshake, request, answer, end
    case Purpose::tcp_unanswered:
    case Purpose::udp_unanswered:
      return 1;
    default:
      return 2;
  }
}

Conversation begin(Purpose purpose, std::uint32_t packets, std::uint64_t longest_ns,
                   Random& random) {
  constexpr std::uint64_t kUs = 1000;
  Conversation c;
  c.purpose = purpose;
  c.packets = packets;
  c.client.side = From::client;
  c.server = {From::server, draw_server(random), draw_server_port(purpose, random)};
  c.ipv6 = random.percent(25);
  c.reset = random.percent(10);
  c.client_next = static_cast<std::uint32_t>(random());
  c.server_next = static_cast<std::uint32_t>(random());
  c.round_trip_ns = std::min(random.log_uniform(1'000, 200'000) * kUs, longest_ns / 4);
  const std::uint64_t gap_us =
      purpose == Purpose::ping ? 1'000'000 : random.log_uniform(200, 50'000);
  c.gap_ns = std::min(gap_us * kUs, longest_ns / packets);
  if (purpose == Purpose::ping) c.round_trip_ns = std::min(c.round_trip_ns, c.gap_ns);
  return c;
}

Frame next_frame(Conversation& conversation, Random& random) {
  Conversation& c = conversation;
  Frame frame;
  if (is_tcp(c.purpose)) {
    frame = next_tcp(c, random);
  } else if (c.purpose == Purpose::ping) {
    frame = next_ping(c);
  } else {
    frame = next_udp(c, random);
  }
  ++c.done;
  return frame;
}

std::uint64_t next_gap_ns(const Conversation& c, Random& random) {
  const bool answers = c.done % 2 == 1;
  if (c.purpose == Purpose::ping) return (answers ? c.round_trip_ns : c.gap_ns) + 1;
  if (c.done == 1) return c.round_trip_ns + 1;
  return random.exponential(c.gap_ns) + 1;
}

}  // namespace millrace
