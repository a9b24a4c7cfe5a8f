// The key of a flow: the directional five-tuple and a zone. One template for both address families.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>

namespace millrace {

/// An IP address in network byte order. `Bytes` is 4 (IPv4) or 16 (IPv6).
template <unsigned Bytes>
struct Address {
  static constexpr unsigned kBytes = Bytes;
  std::array<std::uint8_t, Bytes> bytes{};

  friend constexpr auto operator<=>(const Address&, const Address&) = default;
};
using AddressV4 = Address<4>;
using AddressV6 = Address<16>;

/// A number of 24 bits that separates customers with overlapping addresses. 0: no zone.
using Zone = std::uint32_t;

/// The key of one flow. Ports are in host byte order; for ICMP echo both are the identifier, for
/// protocols without ports both are 0. There is no padding: keys compare and hash as bytes.
template <class AddressType>
struct alignas(8) Key {
  using Address = AddressType;

  Address source;
  Address destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint8_t protocol = 0;
  std::array<std::uint8_t, 3> zone{};

  Zone number_of_zone() const {
    return zone[0] | static_cast<Zone>(zone[1]) << 8 | static_cast<Zone>(zone[2]) << 16;
  }
  /// `number` must be below 2^24.
  void set_zone(Zone number) {
    for (unsigned i = 0; i < zone.size(); ++i) zone[i] = static_cast<std::uint8_t>(number >> 8 * i);
  }

  friend bool operator==(const Key& a, const Key& b) {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < sizeof(Key); i += 8) difference |= a.word(i) ^ b.word(i);
    return difference == 0;
  }

  /// Returns the eight bytes at `offset`, a multiple of 8, in the machine's byte order.
  std::uint64_t word(std::size_t offset) const {
    std::uint64_t w;
    std::memcpy(&w, reinterpret_cast<const unsigned char*>(this) + offset, 8);
    return w;
  }
};
using KeyV4 = Key<AddressV4>;
using KeyV6 = Key<AddressV6>;

static_assert(sizeof(KeyV4) == 16 && sizeof(KeyV6) == 40);

/// Returns the key of the opposite direction of the same conversation, if no address or port is
/// rewritten.
template <class A>
constexpr Key<A> reversed(const Key<A>& key) {
  return {key.destination, key.source,   key.destination_port,
          key.source_port, key.protocol, key.zone};
}

}  // namespace millrace
