// A capture, divided among workers when it is loaded, as a NIC divides what arrives: so that no
// core that spreads is the limit.
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

/// Each packet's shard, by its position in the capture. A packet without a
/// key has shard 0, as NICs send to their first queue what they cannot hash.
Result<std::vector<std::uint16_t>> shards_of(const Capture& capture, const Spread& spread,
                                             const Indirection& indirection,
                                             const Steering& steering);

/// The parts of that capture for `workers` ports, 1 or more.
std::vector<CapturePart> split(std::span<const std::uint16_t> shards,
                               const Indirection& indirection, unsigned workers);

}  // namespace millrace
