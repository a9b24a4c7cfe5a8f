// The contract of a port: where packets come from and go to. A worker owns its ports and calls them
// once a burst.
#pragma once

#include <cstdint>

#include "core/burst.h"
#include "core/link_type.h"

namespace millrace {

/// How many bursts may be in flight: the memory behind a burst stays valid until the port has been
/// asked for this many more.
inline constexpr unsigned kBurstsInFlight = 4;

class Port {
 public:
  virtual ~Port() = default;
  virtual LinkType link_type() const = 0;
  /// Fills `size`, `now`, `data`, `length`, `wire_length` and `handle`. False at the end: nothing
  /// more will ever arrive. A burst may be empty while time passes; it comes in empty.
  virtual bool receive(Burst& burst) = 0;
  /// Sends the packets whose bit in `forward` is set (bit i for packet i), in order; the others go
  /// back to where their memory came from.
  virtual void send(const Burst& burst, std::uint64_t forward) = 0;
  /// Everything has been received and sent. Called once, at the end.
  virtual void finish() {}
};

}  // namespace millrace
