// The client's end of a connection: the one that no function rewrites.
#pragma once

#include <cstdint>

#include "core/steering.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct ClientEnd {
  A address;
  std::uint16_t port = 0;
};

/// Of the connection whose packets have that key, the i-th of those that `steered` is about.
template <class A>
ClientEnd<A> client_of(const Steered& steered, unsigned i, const Key<A>& key) {
  if (steered.is_by_destination(i)) return {key.destination, key.destination_port};
  return {key.source, key.source_port};
}

}  // namespace millrace
