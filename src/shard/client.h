// The client's end of a connection: the one that no function rewrites.
#pragma once

#include <cstdint>

#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

template <class A>
struct ClientEnd {
  A address;
  std::uint16_t port = 0;
};

/// Of the connection whose packets on that side have that key.
template <class A>
ClientEnd<A> client_of(Side side, const Key<A>& key) {
  if (side == Side::originator) return {key.source, key.source_port};
  return {key.destination, key.destination_port};
}

}  // namespace millrace
