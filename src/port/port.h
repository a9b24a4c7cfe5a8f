// The contract of a port: where packets come from and go to. A worker owns its ports and calls them
// once a burst.
#pragma once

#include <cstdint>

#include "core/burst.h"
#include "core/link_type.h"
#include "core/reset.h"
#include "core/steering.h"
#include "millrace/key.h"

namespace millrace {

/// How many bursts may be in flight: the memory behind a burst stays valid until the port has been
/// asked for this many more.
inline constexpr unsigned kBurstsInFlight = 4;

class Port {
 public:
  virtual ~Port() = default;
  /// Returns how the packets begin of the burst that `receive` gave last.
  virtual LinkType link_type() const = 0;
  /// Whether `receive` gives parsed bursts.
  virtual bool receives_parsed() const { return false; }
  /// Fills `size`, `now`, `data`, `length`, `wire_length` and `handle`, and `entry` where it is
  /// known. False at the end. A burst may be empty while time passes; it comes in empty.
  virtual bool receive(Burst& burst) = 0;
  /// The burst's keys have been filed; nothing else has been done. May take packets out that are
  /// another worker's.
  virtual void filed(Burst&, const Steering&) {}
  /// Connections have been looked up. May give packets without one a verdict, and returns which, a
  /// bit each: no function is asked about them.
  virtual std::uint64_t looked_up(Burst&, const Steering&) { return 0; }
  /// The burst is served, and the packets whose bit in `forward` is set may go out. Says which do,
  /// and may change verdicts.
  virtual std::uint64_t route(Burst&, std::uint64_t forward) { return forward; }
  /// Sends the packets whose bit in `forward` is set (bit i for packet i), in order; the others go
  /// back to where their memory came from.
  virtual void send(const Burst& burst, std::uint64_t forward) = 0;
  /// Sends the RST, if the port can make packets. To be called between two bursts.
  virtual void tell(const Reset<KeyV4>&) {}
  virtual void tell(const Reset<KeyV6>&) {}
  /// Everything until that end has been received and sent.
  virtual void finish() {}
};

}  // namespace millrace
