// The contract of a port: where packets come from and go to. A worker owns its port and calls it
// once a burst.
#pragma once

#include <cstdint>

#include "core/burst.h"
#include "core/link_type.h"
#include "core/reset.h"
#include "core/steering.h"
#include "millrace/key.h"

namespace millrace {

/// Number of bursts that may be in flight: the memory behind a burst stays valid until `receive`
/// has returned this many more bursts.
inline constexpr unsigned kBurstsInFlight = 4;

class Port {
 public:
  virtual ~Port() = default;
  /// Returns the link type of the packets in the burst that `receive` returned last.
  virtual LinkType link_type() const = 0;
  /// True if `receive` returns parsed bursts.
  virtual bool receives_parsed() const { return false; }
  /// Fills `size`, `now`, `data`, `length`, `wire_length` and `handle`. The burst must be empty,
  /// and may stay empty while time passes. False: no more packets will come.
  virtual bool receive(Burst& burst) = 0;
  /// Number of the burst's first packets that another worker has received and passed on: that
  /// worker has followed them if they are fragments (src/fragments).
  virtual unsigned known() const { return 0; }
  /// True if packets may be taken out of a burst, and returned to the port by `place`.
  virtual bool can_place() const { return false; }
  /// Places a packet, which was taken out of an earlier burst of this port or of another worker's,
  /// at `at` in a burst that `receive` does not fill: writes the columns that `receive` writes for
  /// a packet. Places are filled from 0 on.
  virtual void place(Burst&, unsigned /*at*/, Handle) {}
  /// May take out of the burst packets that another worker serves, give packets a verdict, and
  /// remove keys from the lanes. To be called for a parsed burst, before lookups.
  virtual void filed(Burst&, const Steering&) {}
  /// May give packets without a connection a verdict, and returns a bit for each packet that gets
  /// one: no function sees these packets. To be called after connections have been looked up.
  virtual std::uint64_t looked_up(Burst&, const Steering&) { return 0; }
  /// Writes `Burst::shard` for the packets in lanes, unless `filed` has done so. To be called
  /// before connections begin, if shards have copies at another server.
  virtual void number_shards(Burst&, const Steering&) {}
  /// Takes packets (bits by place in the burst) of a burst that has been served, and brings them in
  /// a later one, with `Burst::came_again`: they then come from nobody's customer or host. False:
  /// the port takes none, and the line serves them again at once. A port that hands packets over to
  /// other workers takes them.
  virtual bool take_again(Burst&, std::uint64_t /*packets*/) { return false; }
  /// Routes a burst that has been served; packets with their bit in `forward` set may go out.
  /// Returns the bits of the packets that do go out, and may change verdicts.
  virtual std::uint64_t route(Burst&, std::uint64_t forward) { return forward; }
  /// Sends the packets with their bit in `forward` set (bit i for packet i), in order; frees the
  /// memory of the other packets, except those that `route` gave away.
  virtual void send(const Burst& burst, std::uint64_t forward) = 0;
  /// Sends the RST if the port can make packets. To be called between two bursts.
  virtual void tell(const Reset<KeyV4>&) {}
  virtual void tell(const Reset<KeyV6>&) {}
  /// Ends the port's work. To be called when every burst has been received and sent.
  virtual void finish() {}
};

}  // namespace millrace
