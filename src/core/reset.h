// A RST to be made, which tells one end of a TCP connection that the connection is over.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

template <class K>
struct Reset {
  K key;                       ///< of the RST itself: its destination is the end that is told
  std::uint32_t sequence = 0;  ///< the number that this end expects next
  /// What the RST acknowledges of this end's bytes; none: it has no ACK.
  std::optional<std::uint32_t> acknowledged;

  friend bool operator==(const Reset&, const Reset&) = default;
};

}  // namespace millrace
