// The client's end of a connection: the one that no function rewrites.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "core/steering.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct ClientEnd {
  A address;
  std::uint16_t port = 0;

  friend auto operator<=>(const ClientEnd&, const ClientEnd&) = default;
};

/// Of the connection whose packets have that key, the i-th of those that `steered` is about. Where
/// nothing is rewritten either end would do, if it is the same for both directions.
template <class A>
ClientEnd<A> client_of(const Steered& steered, unsigned i, const Key<A>& key) {
  const ClientEnd<A> source{key.source, key.source_port};
  const ClientEnd<A> destination{key.destination, key.destination_port};
  if (steered.is_by_source(i)) return source;
  if (steered.is_by_destination(i)) return destination;
  return std::min(source, destination);
}

}  // namespace millrace
