// Divides a capture among workers before it is replayed, as a NIC divides the packets that arrive.
// So no thread has to divide packets during the replay, which would limit its speed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/burst.h"
#include "port/capture.h"
#include "port/replay_port.h"
#include "shard/indirection.h"
#include "shard/spread.h"

namespace millrace {

/// Returns each packet's shard, by its position in the capture. A later fragment has the shard of
/// its datagram's first one. A packet without a key has shard 0, as NICs put packets that they
/// cannot hash into their first queue. Errors: as `ReplayPort::create`.
Result<std::vector<std::uint16_t>> shards_of(const Capture& capture, const Spread& spread,
                                             const Indirection& indirection,
                                             const Steering& steering);

/// Returns the parts of the capture for `workers` ports, 1 or more, given its packets' `shards`.
std::vector<CapturePart> split(std::span<const std::uint16_t> shards,
                               const Indirection& indirection, unsigned workers);

}  // namespace millrace
