// Datagrams that arrive in fragments. Only the first fragment has ports or an ICMP type, so the
// host's treatment of it is remembered for the later ones.
//
// `read_fragment` is a plain function for any thread; one worker owns a `Treatments`. A
// `Treatments` has 1024 places; a newer datagram takes the place of an older one with an equal
// hash. A datagram that has been forgotten is treated as if its first fragment had not arrived.
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
  std::uint8_t protocol = 0;  ///< IPv4 only

  friend bool operator==(const Datagram&, const Datagram&) = default;
};

template <class A>
struct Fragment {
  Datagram<A> datagram;
  bool is_first = false;
};

/// Returns the fragment that a parsed packet is; none for a whole packet. An atomic fragment (RFC
/// 6946) counts as a whole packet.
template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers);

/// How a datagram's first fragment was treated.
enum class Treatment : std::uint8_t {
  unknown,
  refused,   ///< dropped, as the datagram belongs to a service
  answered,  ///< a ping to the host itself: returned as a reply
  routed,    ///< given to the kernel, or routed on although services may take its destination
};

template <class A>
class Treatments {
 public:
  static constexpr unsigned kPlaces = 1024;
  static constexpr std::uint32_t kLastsMs = 30'000;  // Linux's `ipfrag_time`

  Treatments() : places_(kPlaces) {}

  void note(const Datagram<A>& datagram, Treatment treatment, Tick now) {
    places_[place(datagram)] = {datagram, treatment, now};
  }
  Treatment find(const Datagram<A>& datagram, Tick now) const {
    const Place& there = places_[place(datagram)];
    // The difference is unsigned, as a place may be older than the 24.8 days of signed ticks.
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
