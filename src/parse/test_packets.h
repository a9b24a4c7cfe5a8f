// Makes packets for tests from pieces, which are joined with `+`, outermost first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "parse/parse.h"

namespace millrace::test {

using Bytes = std::vector<std::byte>;

inline Bytes operator+(Bytes a, const Bytes& b) {
  for (const std::byte value : b) a.push_back(value);  // GCC 12 warns wrongly about insert()
  return a;
}

inline Bytes bytes(std::initializer_list<unsigned> values) {
  Bytes b;
  for (const unsigned value : values) b.push_back(static_cast<std::byte>(value));
  return b;
}

inline Bytes zeros(std::size_t count) { return Bytes(count); }

/// Returns two bytes, big-endian.
inline Bytes be(unsigned value) { return bytes({value >> 8 & 0xff, value & 0xff}); }

inline Bytes ethernet(unsigned type) {
  return bytes({2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}) + be(type);
}
inline Bytes tag(unsigned type, unsigned vlan = 7) { return be(vlan) + be(type); }
inline Bytes label(unsigned value, bool bottom) {
  return be(value >> 4) + bytes({(value & 15) << 4 | (bottom ? 1U : 0U), 64});
}
inline Bytes snap(unsigned oui, unsigned type) {
  return bytes({0xaa, 0xaa, 3, oui >> 16 & 0xff, oui >> 8 & 0xff, oui & 0xff}) + be(type);
}
inline Bytes pppoe(const Bytes& protocol, std::size_t payload) {
  return bytes({0x11, 0, 0, 9}) + be(static_cast<unsigned>(payload + protocol.size())) + protocol;
}
inline Bytes cooked(unsigned type) { return be(0) + be(1) + be(6) + zeros(8) + be(type); }
inline Bytes cooked2(unsigned type) { return be(type) + zeros(18); }

struct V4 {
  unsigned protocol = 6;
  unsigned fragment = 0x4000;  // the field of flags and offset
  Bytes options;
  int total = -1;  // total length; negative: the right one
  unsigned version = 4;
};
/// Returns an IPv4 packet from 192.0.2.1 to 198.51.100.2.
inline Bytes ipv4(const V4& h, const Bytes& payload) {
  const std::size_t header = 20 + h.options.size();
  const unsigned total =
      h.total < 0 ? static_cast<unsigned>(header + payload.size()) : static_cast<unsigned>(h.total);
  return bytes({h.version << 4 | static_cast<unsigned>(header / 4), 0}) + be(total) + be(77) +
         be(h.fragment) + bytes({64, h.protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2}) + h.options +
         payload;
}

struct V6 {
  unsigned next = 6;
  int payload = -1;
  unsigned version = 6;
};
/// Returns an IPv6 packet from 2001:db8::1 to 2001:db8::2.
inline Bytes ipv6(const V6& h, const Bytes& payload) {
  const unsigned length =
      h.payload < 0 ? static_cast<unsigned>(payload.size()) : static_cast<unsigned>(h.payload);
  const Bytes prefix = bytes({0x20, 1, 0x0d, 0xb8}) + zeros(11);
  return bytes({h.version << 4, 0, 0, 0}) + be(length) + bytes({h.next, 64}) + prefix + bytes({1}) +
         prefix + bytes({2}) + payload;
}

/// Returns a hop-by-hop, destination options or routing header of `8 * units` bytes.
inline Bytes extension(unsigned next, unsigned units = 1, unsigned segments_left = 0) {
  return bytes({next, units - 1, 0, segments_left}) + zeros(8 * std::size_t{units} - 4);
}
inline Bytes fragment6(unsigned next, unsigned offset, bool more) {
  return bytes({next, 0}) + be(offset << 3 | (more ? 1U : 0U)) + zeros(4);
}
inline Bytes authentication(unsigned next, unsigned words) {
  return bytes({next, words - 2}) + zeros(4 * std::size_t{words} - 2);
}

/// Returns a TCP segment from port 1024 to 443.
inline Bytes tcp(std::size_t payload = 0) {
  return be(1024) + be(443) + zeros(8) + bytes({0x50, 0x10, 1, 0}) + zeros(4 + payload);
}
inline Bytes udp(std::size_t payload = 0) {
  return be(1024) + be(443) + be(static_cast<unsigned>(8 + payload)) + zeros(2 + payload);
}
/// Returns an ICMP message with identifier 4660.
inline Bytes icmp(unsigned type) { return bytes({type, 0, 0, 0}) + be(4660) + zeros(6); }

/// The parser's result for one packet. The packet lies at the end of its heap block, so that the
/// address sanitizer sees a read beyond it.
struct Parsed {
  std::unique_ptr<std::byte[]> memory;
  std::uint16_t length = 0;
  Verdict verdict{};
  Headers headers;
  std::uint64_t fragments = 0;
  unsigned v4 = 0;  // number of IPv4 keys in lanes
  unsigned v6 = 0;  // number of IPv6 keys in lanes
  KeyV4 key4;
  KeyV6 key6;
  std::optional<KeyV4> quoted4;  // an ICMP error's key in the lane of quoted packets
  std::optional<KeyV6> quoted6;

  template <class K>
  const std::optional<K>& quoted() const {
    return of_family<K>(quoted4, quoted6);
  }
};

inline Parsed parse(LinkType link, const Bytes& packet) {
  Parsed p;
  p.length = static_cast<std::uint16_t>(packet.size());
  p.memory = std::make_unique<std::byte[]>(packet.size());
  if (!packet.empty()) std::memcpy(p.memory.get(), packet.data(), packet.size());
  auto burst = std::make_unique<Burst>();
  burst->size = 1;
  burst->data[0] = p.memory.get();
  burst->length[0] = p.length;
  burst->wire_length[0] = p.length;
  millrace::parse(*burst, link);
  p.verdict = burst->verdict[0];
  p.headers = burst->headers[0];
  p.fragments = burst->fragments;
  p.v4 = burst->v4.size;
  p.v6 = burst->v6.size;
  if (p.v4 != 0) p.key4 = burst->v4.key[0];
  if (p.v6 != 0) p.key6 = burst->v6.key[0];
  if (burst->quoted_v4.size != 0) p.quoted4 = burst->quoted_v4.key[0];
  if (burst->quoted_v6.size != 0) p.quoted6 = burst->quoted_v6.key[0];
  return p;
}

inline Bytes cut(Bytes packet, std::size_t length) {
  packet.resize(length);
  return packet;
}

}  // namespace millrace::test
