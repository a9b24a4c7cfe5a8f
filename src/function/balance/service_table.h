// Which service a destination belongs to: tuple-space search (Srinivasan, Suri and Varghese,
// "Packet Classification Using Tuple Space Search", SIGCOMM 1999). All services of one *shape*
// (prefix length, port given or not, protocol given or not) differ only in the bits that the shape
// looks at, so one probe a shape decides, most specific shape first. The catch-all needs none.
//
//   IPv4   | address 32 | port 16 | protocol 8 | prefix length 8 |   (one word)
//   IPv6   two words of address, then the same without it
//
// An address stands there as it does in memory.
//
// One worker owns a table; its services do not change but by `build`.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "function/balance/address.h"
#include "function/balance/service.h"

namespace millrace {

template <class A>
class ServiceTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  using Words = std::array<std::uint64_t, A::kBytes / 8 + 1>;

  /// What tells a service from every other.
  static Words identity(const ServiceSpec<A>& service) {
    return words(service.address, service.port, service.protocol, service.prefix_bits);
  }

  /// The table that finds the index of each of `services`, whose identities are distinct.
  void build(const std::vector<const ServiceSpec<A>*>& services) {
    *this = ServiceTable{};
    slots_.resize(std::bit_ceil(4 * services.size() + 4));
    for (std::uint32_t i = 0; i < services.size(); ++i) add(*services[i], i);
    std::ranges::sort(shapes_, std::ranges::greater{}, &Shape::specificity);
  }

  /// The most specific service for that destination: longest prefix, then port given, then protocol
  /// given. `port` is 0 for protocols without ports.
  std::uint32_t find(const A& address, std::uint16_t port, std::uint8_t protocol) const {
    if (shapes_.empty()) return catch_all_;
    const Words packet = words(address, port, protocol, 0);
    for (const Shape& shape : shapes_) {
      const std::uint32_t found = probe(shape.of(packet));
      if (found != kNone) return found;
    }
    return catch_all_;
  }

  /// True where every destination has the same service.
  bool only_catch_all() const { return shapes_.empty() && catch_all_ != kNone; }
  bool empty() const { return shapes_.empty() && catch_all_ == kNone; }

 private:
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
    std::uint32_t service = kNone;
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

  void add(const ServiceSpec<A>& service, std::uint32_t i) {
    if (service.prefix_bits == 0 && service.port == 0 && service.protocol == 0) {
      catch_all_ = i;
      return;
    }
    const bool port = service.port != 0;
    const bool protocol = service.protocol != 0;
    A ones;
    ones.bytes.fill(0xff);
    const Shape shape{
        .mask =
            words(prefix_of(ones, service.prefix_bits), port ? 0xffff : 0, protocol ? 0xff : 0, 0),
        .bits = service.prefix_bits,
        .specificity = service.prefix_bits << 2 | (port ? 2U : 0U) | (protocol ? 1U : 0U)};
    if (std::ranges::find(shapes_, shape) == shapes_.end()) shapes_.push_back(shape);
    const Words key = identity(service);
    std::size_t at = home(key);
    while (slots_[at].service != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, i};
  }

  // The keys in the table are the operator's, so no packet can lengthen a probe: a fixed hash will
  // do.
  std::size_t home(const Words& key) const {
    std::uint64_t h = 0;
    for (const std::uint64_t w : key) {
      h = (h ^ w) * 0x9e3779b97f4a7c15;
      h ^= h >> 32;
    }
    return h & (slots_.size() - 1);
  }

  // std::array's comparison would call memcmp.
  static bool same(const Words& a, const Words& b) {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
    return difference == 0;
  }

  std::uint32_t probe(const Words& key) const {
    for (std::size_t at = home(key);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.service == kNone || same(slot.key, key)) return slot.service;
    }
  }

  std::vector<Shape> shapes_;  ///< most specific first; without the catch-all's
  std::vector<Slot> slots_;    ///< a quarter full at most; a power of two of them
  std::uint32_t catch_all_ = kNone;
};

}  // namespace millrace
