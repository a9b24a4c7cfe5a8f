// The client's end of a connection: the end that no function rewrites.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>

#include "core/address_numbers.h"
#include "core/steering.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct ClientEnd {
  A address;
  std::uint16_t port = 0;

  friend auto operator<=>(const ClientEnd&, const ClientEnd&) = default;
};

/// Returns the hash of the i-th of the keys that `steered` is about, if it says it.
inline std::optional<std::uint32_t> hash_given(const Steered& steered, unsigned i) {
  if (!steered.is_by_number(i)) return std::nullopt;
  return number_of(steered.owner[i]);
}

/// Returns the client's end of a connection, by `key`, the i-th of the keys that `steered` is
/// about; or its owner, without a port. If `steered` names no end for the key, returns the lesser
/// end, which is the same in both directions.
template <class A>
ClientEnd<A> client_of(const Steered& steered, unsigned i, const Key<A>& key) {
  if constexpr (A::kBytes == 4) {
    if (steered.is_by_owner(i)) return {steered.owner[i]};
  }
  const ClientEnd<A> source{key.source, key.source_port};
  const ClientEnd<A> destination{key.destination, key.destination_port};
  if (steered.is_by_source(i)) return source;
  if (steered.is_by_destination(i)) return destination;
  return std::min(source, destination);
}

}  // namespace millrace
