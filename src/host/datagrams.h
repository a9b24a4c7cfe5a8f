// Datagrams that come in fragments. Only the first fragment shows ports and types, so its treatment
// is remembered for the others.
//
// `read_fragment` is a plain function for any thread; one worker owns a `Treatments`. That has room
// for 1024 datagrams: a newer one takes the place of an older one of the same hash. A datagram that
// has been forgotten is treated as if its first fragment had not come.
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

/// The fields that all fragments of one datagram share (RFC 791, 3.2; RFC 8200, 4.5).
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

/// Returns the fragment that a parsed packet is; nothing for a whole packet, as which an atomic
/// fragment (RFC 6946) counts.
template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers);

/// The treatment of a datagram's first fragment.
enum class Treatment : std::uint8_t {
  unknown,
  refused,   ///< dropped, since it is a service's
  answered,  ///< a ping of the host itself: it went back
  routed,    ///< no service takes it, though its destination is served
};

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
