// A table that finds a packet's destination among several: tuple-space search (Srinivasan, Suri and
// Varghese, "Packet Classification Using Tuple Space Search", SIGCOMM 1999). A *shape* is a prefix
// length with or without a port, with or without a protocol. All destinations of one shape depend
// on the same bits of a packet, so one probe for each shape is enough, the most specific shape
// first. The catch-all (no prefix, port or protocol) needs no probe.
//
// A key:
//
//   IPv4   | address 32 | port 16 | protocol 8 | prefix length 8 |   (one word)
//   IPv6   two words of address, then a word as above with 0 in place of the address
//
// An address is copied as its bytes are in memory.
//
// The owner of a table builds it; then any thread may search it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/address.h"
#include "millrace/key.h"

namespace millrace {

/// An address or a prefix, with a port and a protocol if they are given.
template <class A>
struct Destination {
  A address;                             ///< all bits behind the prefix are 0
  unsigned prefix_bits = 8 * A::kBytes;  ///< all bits: one address
  std::uint16_t port = 0;                ///< 0: any
  std::uint8_t protocol = 0;             ///< 0: any

  /// True if a packet to address `to` and port `to_port`, of protocol `by`, goes to this
  /// destination. `to_port` is 0 for protocols without ports.
  bool takes(const A& to, std::uint16_t to_port, std::uint8_t by) const {
    return prefix_of(to, prefix_bits) == address && (port == 0 || port == to_port) &&
           (protocol == 0 || protocol == by);
  }
  friend auto operator<=>(const Destination&, const Destination&) = default;
};

template <class A>
class DestinationTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  /// Builds the table anew: `find` returns indices of `all`, which must be distinct.
  void build(std::span<const Destination<A>> all) {
    *this = DestinationTable{};
    slots_.resize(std::bit_ceil(4 * all.size() + 4));
    for (std::uint32_t i = 0; i < all.size(); ++i) add(all[i], i);
    std::ranges::sort(shapes_, std::ranges::greater{}, &Shape::specificity);
  }

  /// Returns the index of the most specific destination of a packet with these values: the longest
  /// prefix, then a port, then a protocol; `kNone` if there is none. `port` is 0 for protocols
  /// without ports.
  std::uint32_t find(const A& address, std::uint16_t port, std::uint8_t protocol) const {
    if (shapes_.empty()) return catch_all_;
    const Words packet = words(address, port, protocol, 0);
    for (const Shape& shape : shapes_) {
      const std::uint32_t found = probe(shape.of(packet));
      if (found != kNone) return found;
    }
    return catch_all_;
  }

  /// True if `find` returns the same destination for every packet.
  bool only_catch_all() const { return shapes_.empty() && catch_all_ != kNone; }
  bool empty() const { return shapes_.empty() && catch_all_ == kNone; }

 private:
  using Words = std::array<std::uint64_t, A::kBytes / 8 + 1>;
  struct Shape {
    Words mask{};
    std::uint64_t bits = 0;
    std::uint32_t specificity = 0;

    Words of(Words packet) const {
      for (std::size_t i = 0; i < packet.size(); ++i) packet[i] &= mask[i];
      packet.back() |= bits;
      return packet;
    }
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct Slot {
    Words key{};
    std::uint32_t index = kNone;
  };

  static Words words(const A& address, std::uint16_t port, std::uint8_t protocol, unsigned bits) {
    Words w{};
    if constexpr (A::kBytes == 4) {
      w[0] = std::uint64_t{std::bit_cast<std::uint32_t>(address)} << 32;
    } else {
      std::memcpy(w.data(), address.bytes.data(), A::kBytes);
    }
    w.back() |= std::uint64_t{port} << 16 | std::uint64_t{protocol} << 8 | bits;
    return w;
  }

  void add(const Destination<A>& to, std::uint32_t i) {
    if (to.prefix_bits == 0 && to.port == 0 && to.protocol == 0) {
      catch_all_ = i;
      return;
    }
    const bool port = to.port != 0;
    const bool protocol = to.protocol != 0;
    A ones;
    ones.bytes.fill(0xff);
    const Shape shape{
        .mask = words(prefix_of(ones, to.prefix_bits), port ? 0xffff : 0, protocol ? 0xff : 0, 0),
        .bits = to.prefix_bits,
        .specificity = to.prefix_bits << 2 | (port ? 2U : 0U) | (protocol ? 1U : 0U)};
    if (std::ranges::find(shapes_, shape) == shapes_.end()) shapes_.push_back(shape);
    const Words key = words(to.address, to.port, to.protocol, to.prefix_bits);
    std::size_t at = home(key);
    while (slots_[at].index != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, i};
  }

  // A fixed hash is enough: the keys in the table are the operator's, so no packet can lengthen a
  // probe.
  std::size_t home(const Words& key) const {
    std::uint64_t h = 0;
    for (const std::uint64_t w : key) {
      h = (h ^ w) * 0x9e3779b97f4a7c15;
      h ^= h >> 32;
    }
    return h & (slots_.size() - 1);
  }

  // Avoids std::array's comparison, which would call memcmp.
  static bool same(const Words& a, const Words& b) {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
    return difference == 0;
  }

  std::uint32_t probe(const Words& key) const {
    for (std::size_t at = home(key);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.index == kNone || same(slot.key, key)) return slot.index;
    }
  }

  std::vector<Shape> shapes_;  ///< most specific first; the catch-all has no shape
  std::vector<Slot> slots_;    ///< a quarter full at most; their number is a power of two
  std::uint32_t catch_all_ = kNone;
};

}  // namespace millrace
