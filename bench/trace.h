// Describes a capture by the properties that matter to a connection table.
#pragma once

#include <cstdint>

#include "millrace/types.h"
#include "port/capture.h"

namespace millrace::bench {

/// Properties of a capture. Its connections are distinct keys: each direction is one, as in
/// `replay` without a configuration.
struct TraceProfile {
  std::uint64_t packets = 0;
  std::uint64_t keyless = 0;  ///< packets that belong to no connection
  double seconds = 0;
  double bytes = 0;  ///< average length of a packet on the wire
  std::uint64_t connections_v4 = 0;
  std::uint64_t connections_v6 = 0;
  double begun_a_second = 0;  ///< connections that begin in a second, on average
  /// Reuse distance: the number of other connections with packets since the previous packet of the
  /// same connection, over packets that are not their connection's first. Median and 90th
  /// percentile. A cache must hold that many connections to still hold the packet's own one.
  std::uint64_t reuse_median = 0;
  std::uint64_t reuse_90 = 0;
  // Shares of the packets that belong to a connection:
  double first_packets = 0;  ///< packets that are their connection's first
  double busiest = 0;        ///< packets of the busiest 1 % of connections

  std::uint64_t connections() const { return connections_v4 + connections_v6; }
};

/// Reads the whole capture. Errors (failed): no memory.
Result<TraceProfile> profile_of(const Capture& capture);

}  // namespace millrace::bench
