// A capture, divided among workers when it is loaded, as a NIC divides what arrives: so that no
// core that spreads is the limit.
#pragma once

#include <functional>
#include <vector>

#include "core/burst.h"
#include "port/capture.h"
#include "port/replay_port.h"
#include "shard/indirection.h"
#include "shard/spread.h"

namespace millrace {

/// Files the keys of a parsed burst under the sides of their connections: what a function does
/// first.
using Sides = std::function<void(Burst&)>;

/// The parts of the capture for `workers` ports, 1 or more. A packet without a key goes where entry
/// 0 does, as NICs send to their first queue what they cannot hash.
Result<std::vector<CapturePart>> split(const Capture& capture, const Spread& spread,
                                       const Indirection& indirection, unsigned workers,
                                       const Sides& sides);

}  // namespace millrace
