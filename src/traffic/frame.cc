#include "traffic/frame.h"

#include <algorithm>
#include <span>

namespace millrace {
namespace {

constexpr unsigned kEthernet = 14;
constexpr unsigned kIpv4 = 20;
constexpr unsigned kIpv6 = 40;
constexpr unsigned kLongestHeaders = kEthernet + kIpv6 + 24;
constexpr std::uint32_t kShortest = 60;

/// Writes big-endian numbers one after another.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  Writer& u8(unsigned v) {
    *at_++ = static_cast<std::byte>(v);
    return *this;
  }
  Writer& u16(unsigned v) { return u8(v >> 8 & 0xff).u8(v & 0xff); }
  Writer& u32(std::uint32_t v) { return u16(v >> 16).u16(v & 0xffff); }

 private:
  std::byte* at_;
};

/// Returns the unfolded sum of big-endian words (RFC 1071); the number of bytes must be even.
std::uint32_t sum(std::span<const std::byte> bytes) {
  std::uint32_t total = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    total += std::to_integer<std::uint32_t>(bytes[i]) << 8 |
             std::to_integer<std::uint32_t>(bytes[i + 1]);
  }
  return total;
}

unsigned folded(std::uint32_t total) {
  while (total >> 16 != 0) total = (total & 0xffff) + (total >> 16);
  return ~total & 0xffff;
}

unsigned protocol_number(const Frame& frame) {
  switch (frame.protocol) {
    case Frame::Protocol::tcp:
      return 6;
    case Frame::Protocol::udp:
      return 17;
    case Frame::Protocol::icmp_echo:
      return frame.ipv6 ? 58 : 1;
  }
  return 0;
}

unsigned l4_header(const Frame& frame) {
  if (frame.protocol != Frame::Protocol::tcp) return 8;
  return (frame.flags & Frame::kSyn) != 0 ? 24 : 20;
}

void write_ethernet(std::byte* at, const Frame& frame) {
  // Locally administered MACs, of one router on the clients' side and one on the servers'.
  const auto mac = [](Writer& w, const Endpoint& end) {
    w.u32(0x02000000).u16(end.side == Endpoint::Side::client ? 1 : 2);
  };
  Writer w(at);
  mac(w, frame.to);
  mac(w, frame.from);
  w.u16(frame.ipv6 ? 0x86dd : 0x0800);
}

void write_ipv4(std::byte* at, const Frame& frame, unsigned l4_length) {
  const auto address = [](const Endpoint& end) {  // 198.18/16 and 198.19/16, RFC 2544
    return (end.side == Endpoint::Side::client ? 0xc6120001 : 0xc6130001) + end.host;
  };
  Writer w(at);
  w.u16(0x4500).u16(kIpv4 + l4_length).u16(0).u16(0x4000);  // Don't Fragment (RFC 6864)
  w.u8(64).u8(protocol_number(frame)).u16(0);
  w.u32(address(frame.from)).u32(address(frame.to));
  Writer(at + 10).u16(folded(sum({at, kIpv4})));
}

void write_ipv6(std::byte* at, const Frame& frame, unsigned l4_length) {
  const auto address = [](Writer& w, const Endpoint& end) {  // 2001:db8:18::/48 and :19, RFC 3849
    w.u32(0x20010db8).u16(end.side == Endpoint::Side::client ? 0x18 : 0x19).u16(0);
    w.u32(0).u32(end.host + 1);
  };
  Writer w(at);
  w.u32(0x60000000).u16(l4_length).u8(protocol_number(frame)).u8(64);
  address(w, frame.from);
  address(w, frame.to);
}

void write_tcp(std::byte* at, const Frame& frame) {
  const unsigned header = l4_header(frame);
  Writer w(at);
  w.u16(frame.from.port).u16(frame.to.port).u32(frame.sequence).u32(frame.acknowledgement);
  w.u16(header / 4 << 12 | frame.flags).u16(0xffff).u32(0);
  if (header > 20) w.u16(0x0204).u16(frame.ipv6 ? 1440 : 1460);  // maximum segment size
}

void write_echo(std::byte* at, const Frame& frame) {
  const bool request = frame.from.side == Endpoint::Side::client;
  const unsigned type = frame.ipv6 ? (request ? 128 : 129) : (request ? 8 : 0);
  Writer w(at);
  w.u8(type).u8(0).u16(0);
  w.u16(request ? frame.from.port : frame.to.port).u16(frame.sequence & 0xffff);
}

/// Writes the L4 header at `at`, directly behind the addresses that its checksum covers. The
/// payload is zero and adds nothing to the sum.
void write_l4(std::byte* at, const Frame& frame, unsigned l4_length) {
  const unsigned addresses = frame.ipv6 ? 32 : 8;
  std::uint32_t pseudo = sum({at - addresses, addresses}) + protocol_number(frame) + l4_length;
  unsigned checksum_at = 16;
  switch (frame.protocol) {
    case Frame::Protocol::tcp:
      write_tcp(at, frame);
      break;
    case Frame::Protocol::udp:
      Writer(at).u16(frame.from.port).u16(frame.to.port).u16(l4_length).u16(0);
      checksum_at = 6;
      break;
    case Frame::Protocol::icmp_echo:
      write_echo(at, frame);
      checksum_at = 2;
      if (!frame.ipv6) pseudo = 0;
      break;
  }
  unsigned checksum = folded(pseudo + sum({at, l4_header(frame)}));
  if (frame.protocol == Frame::Protocol::udp && checksum == 0) checksum = 0xffff;  // RFC 768
  Writer(at + checksum_at).u16(checksum);
}

}  // namespace

std::uint32_t FrameBuilder::build(const Frame& frame) {
  const unsigned ip = frame.ipv6 ? kIpv6 : kIpv4;
  const unsigned header = l4_header(frame);
  const unsigned l4_length = header + frame.payload;
  std::byte* const at = bytes_.data();
  write_ethernet(at, frame);
  if (frame.ipv6) {
    write_ipv6(at + kEthernet, frame, l4_length);
  } else {
    write_ipv4(at + kEthernet, frame, l4_length);
  }
  write_l4(at + kEthernet + ip, frame, l4_length);
  // Clears the rest of a longer header of an earlier frame.
  std::fill(at + kEthernet + ip + header, at + kLongestHeaders, std::byte{});
  return std::max(kShortest, kEthernet + ip + l4_length);
}

}  // namespace millrace
