// Datagrams that come in fragments, of which only the first one shows what it is: what became of
// that is remembered for the others. Plain functions; one worker owns a memory.
//
// The memory is bounded, and the latest of those that meet in a place is kept. What is not
// remembered is treated as if its first fragment had not come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/burst.h"
#include "core/protocol.h"
#include "host/addresses_of.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// What the fragments of one datagram have in common (RFC 791, 3.2; RFC 8200, 4.5).
template <class A>
struct Datagram {
  A source;
  A destination;
  std::uint32_t id = 0;
  std::uint8_t protocol = 0;  ///< of IPv4

  friend bool operator==(const Datagram&, const Datagram&) = default;
};

template <class A>
struct Fragment {
  Datagram<A> datagram;
  bool is_first = false;
};

/// The fragment that a parsed packet is; nothing where it is whole (RFC 6946, too).
template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers);

/// What has become of a datagram's first fragment.
enum class Treatment : std::uint8_t { unknown, refused, answered, routed };

template <class A>
class Treatments {
 public:
  static constexpr unsigned kPlaces = 1024;
  static constexpr std::uint32_t kLastsMs = 30'000;  // as long as Linux waits for fragments

  Treatments() : places_(kPlaces) {}

  void note(const Datagram<A>& datagram, Treatment treatment, Tick now) {
    places_[place(datagram)] = {datagram, treatment, now};
  }
  Treatment find(const Datagram<A>& datagram, Tick now) const {
    const Place& there = places_[place(datagram)];
    // Unsigned: a place may have been written more than the 24.8 days ago that ticks can tell.
    const bool is_known = there.datagram == datagram && now.ms - there.at.ms <= kLastsMs;
    return is_known ? there.treatment : Treatment::unknown;
  }

 private:
  struct Place {
    Datagram<A> datagram;
    Treatment treatment = Treatment::unknown;
    Tick at;
  };

  static std::size_t place(const Datagram<A>& datagram) {
    std::uint32_t hash = datagram.id;
    for (const A* address : {&datagram.source, &datagram.destination}) {
      for (const std::uint8_t byte : address->bytes) hash = hash * 0x01000193 ^ byte;
    }
    return (hash * 0x9e3779b1U) >> 22;
  }

  std::vector<Place> places_;
};
static_assert(Treatments<AddressV4>::kPlaces == 1U << (32 - 22));

}  // namespace millrace
