// Checksums of test packets, computed over the whole packet, a byte or bit at a time: the reference
// for tests, which shares no code with the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "parse/test_packets.h"

namespace millrace::test {

inline unsigned plain_sum(const std::byte* data, std::size_t size, unsigned sum) {
  for (std::size_t i = 0; i < size; ++i) {
    sum += std::to_integer<unsigned>(data[i]) << (i % 2 == 0 ? 8 : 0);
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return sum;
}

/// Returns the packet with a right IPv4 header checksum. Its checksum field must be 0, and the
/// header without options.
inline Bytes summed(Bytes packet) {
  const unsigned sum = 0xffff - plain_sum(packet.data(), 20, 0);
  packet[10] = static_cast<std::byte>(sum >> 8);
  packet[11] = static_cast<std::byte>(sum);
  return packet;
}

inline std::uint32_t plain_crc32c(const Bytes& data) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte b : data) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

struct Layout {
  unsigned family;
  unsigned l4;
  unsigned protocol;

  unsigned checksum() const { return protocol == 6 ? 16 : protocol == 58 || protocol == 1 ? 2 : 6; }
  unsigned source() const { return family == 4 ? 12 : 8; }
  unsigned address() const { return family == 4 ? 4 : 16; }
};

inline unsigned get(const Bytes& p, unsigned at) {
  return std::to_integer<unsigned>(p[at]) << 8 | std::to_integer<unsigned>(p[at + 1]);
}
inline void put(Bytes& p, unsigned at, unsigned value) {
  p[at] = static_cast<std::byte>(value >> 8);
  p[at + 1] = static_cast<std::byte>(value);
}

/// Returns the inverted sum of all that the transport checksum covers: 0 (or 0xffff) if the
/// checksum is right.
inline unsigned l4_error(const Bytes& p, const Layout& layout) {
  const auto size = static_cast<unsigned>(p.size()) - layout.l4;
  unsigned sum = 0;
  if (layout.protocol != 1) {
    sum = plain_sum(p.data() + layout.source(), 2 * std::size_t{layout.address()},
                    layout.protocol + size);
  }
  return ~plain_sum(p.data() + layout.l4, size, sum) & 0xffff;
}
inline unsigned l3_error(const Bytes& p) {
  return ~plain_sum(p.data(), (std::to_integer<std::size_t>(p[0]) & 15) * 4, 0) & 0xffff;
}

inline void make_right_l3(Bytes& p) {
  put(p, 10, 0);
  put(p, 10, l3_error(p));
}
inline void make_right(Bytes& p, const Layout& layout) {
  if (layout.family == 4) make_right_l3(p);
  const unsigned at = layout.l4 + layout.checksum();
  put(p, at, 0);
  const unsigned checksum = l4_error(p, layout);
  put(p, at,
      checksum == 0 && (layout.protocol == 17 || layout.protocol == 136) ? 0xffff : checksum);
}

inline Bytes packet(unsigned family, unsigned protocol, std::mt19937& random, std::size_t size) {
  Bytes payload(size);
  for (std::byte& b : payload) b = static_cast<std::byte>(random());
  if (protocol == 1 || protocol == 58) payload[0] = protocol == 1 ? std::byte{8} : std::byte{128};
  return family == 4 ? ipv4({.protocol = protocol}, payload) : ipv6({.next = protocol}, payload);
}

template <class K>
typename K::Address random_address(std::mt19937& random) {
  typename K::Address address;
  for (auto& b : address.bytes) b = static_cast<std::uint8_t>(random());
  return address;
}

/// Returns the difference modulo 0xffff, where 0 and 0xffff are the same number.
inline unsigned distance(unsigned a, unsigned b) { return (a + 0xffff - b) % 0xffff; }

inline Bytes with_right_sctp(Bytes p) {
  for (unsigned i = 8; i < 12; ++i) p[i] = {};
  const std::uint32_t crc = plain_crc32c(p);
  for (unsigned i = 0; i < 4; ++i) p[8 + i] = static_cast<std::byte>(crc >> 8 * i);
  return p;
}
/// Returns an SCTP packet of `size` bytes with a right CRC.
inline Bytes sctp(std::mt19937& random, std::size_t size) {
  Bytes p(size);
  for (std::byte& b : p) b = static_cast<std::byte>(random());
  return with_right_sctp(p);
}
inline bool is_right_sctp(Bytes p) {
  const Bytes field(p.begin() + 8, p.begin() + 12);
  std::memset(p.data() + 8, 0, 4);
  const std::uint32_t crc = plain_crc32c(p);
  for (unsigned i = 0; i < 4; ++i) {
    if (field[i] != static_cast<std::byte>(crc >> 8 * i)) return false;
  }
  return true;
}

}  // namespace millrace::test
