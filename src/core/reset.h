// A RST to be made: by which one end of a TCP connection learns that it is over.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

template <class K>
struct Reset {
  K key;                                      ///< from whom it is to come, and to whom it goes
  std::uint32_t sequence = 0;                 ///< that the one who is told expects next
  std::optional<std::uint32_t> acknowledged;  ///< none: it has no ACK

  friend bool operator==(const Reset&, const Reset&) = default;
};

}  // namespace millrace
