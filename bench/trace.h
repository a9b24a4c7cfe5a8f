// What a capture is like, as far as a connection table feels it.
#pragma once

#include <cstdint>

#include "millrace/types.h"
#include "port/capture.h"

namespace millrace::bench {

/// Connections are distinct keys: each direction on its own, as `replay` without a configuration
/// has them.
struct TraceProfile {
  std::uint64_t packets = 0;
  std::uint64_t keyless = 0;  ///< of them, those that belong to no connection
  double seconds = 0;
  double bytes = 0;                  ///< of a packet on the wire, on average
  std::uint64_t connections_v4 = 0;  ///< in all
  std::uint64_t connections_v6 = 0;
  double begun_a_second = 0;
  /// Other connections that were met since a connection's last packet: half of the packets that are
  /// not their connection's first have less, and 90 %. What a cache has to keep.
  std::uint64_t reuse_median = 0;
  std::uint64_t reuse_90 = 0;
  double first_packets = 0;  ///< share of packets that are their connection's first
  double busiest = 0;        ///< share of packets that the busiest 1 % of connections have

  std::uint64_t connections() const { return connections_v4 + connections_v6; }
};

/// Errors (failed): no memory.
Result<TraceProfile> profile_of(const Capture& capture);

}  // namespace millrace::bench
