// Pings to the host that arrive in fragments. Only the first fragment shows that it is a ping, so
// the host remembers the datagrams of those that it has answered, and returns their later
// fragments, too.
//
// One worker owns an `AnsweredPings`. It has 1024 places; a newer datagram takes the place of an
// older one with an equal hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/elapsed.h"
#include "millrace/types.h"
#include "parse/fragment.h"

namespace millrace {

template <class A>
class AnsweredPings {
 public:
  static constexpr unsigned kPlaces = 1024;
  static constexpr std::uint32_t kLastsMs = 30'000;  // Linux's `ipfrag_time`

  AnsweredPings() : places_(kPlaces) {}

  void note(const Datagram<A>& datagram, Tick now) {
    places_[place(datagram)] = {datagram, now, true};
  }
  bool contains(const Datagram<A>& datagram, Tick now) const {
    const Place& there = places_[place(datagram)];
    return there.is_taken && there.datagram == datagram && elapsed_ms(there.at, now) <= kLastsMs;
  }

 private:
  struct Place {
    Datagram<A> datagram;
    Tick at;
    bool is_taken = false;
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
static_assert(AnsweredPings<AddressV4>::kPlaces == 1U << (32 - 22));

}  // namespace millrace
