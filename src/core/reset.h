// A RST that a port is to send, to end a TCP connection at one of its ends.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

template <class K>
struct Reset {
  K key;                       ///< key of the RST itself, whose destination is the end to reset
  std::uint32_t sequence = 0;  ///< the sequence number that the destination expects next
  /// The acknowledgement number; none: the RST has no ACK flag.
  std::optional<std::uint32_t> acknowledged;

  friend bool operator==(const Reset&, const Reset&) = default;
};

}  // namespace millrace
