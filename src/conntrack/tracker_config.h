// The settings of a tracker.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "conntrack/ageing/ageing.h"
#include "conntrack/life.h"
#include "conntrack/state.h"
#include "core/protocol.h"
#include "millrace/hash.h"
#include "millrace/memory.h"

namespace millrace {

/// Protocols whose connections are `other_unreplied` or `other`, but have timeouts of their own.
inline constexpr std::array kProtocolsWithTimeouts{kProtocolUdpLite, kProtocolDccp, kProtocolGre,
                                                   kProtocolEsp, kProtocolAuthentication};

/// Idle time in ms after which a connection ends, for each state and, in the states
/// `other_unreplied` and `other`, for each protocol in `kProtocolsWithTimeouts` besides.
struct Timeouts {
  static constexpr std::size_t kCount = kConnectionStates + 2 * kProtocolsWithTimeouts.size();
  std::array<std::uint32_t, kCount> ms{};

  /// Returns the place in `ms` of a state of a protocol.
  static constexpr std::size_t place(ConnectionState state, std::uint8_t protocol) {
    auto at = static_cast<std::size_t>(state);
    if (state < ConnectionState::other_unreplied) [[likely]]
      return at;
    for (const std::uint8_t other : kProtocolsWithTimeouts) {
      at += 2;
      if (other == protocol) return at;
    }
    return static_cast<std::size_t>(state);
  }
  std::uint32_t of(ConnectionState state, std::uint8_t protocol) const {
    return ms[place(state, protocol)];
  }

  std::int32_t least() const { return static_cast<std::int32_t>(std::ranges::min(ms)); }

  static Timeouts all(std::uint32_t ms) {
    Timeouts timeouts;
    timeouts.ms.fill(ms);
    return timeouts;
  }
};

/// Settings of the trackers of all workers.
struct TrackerConfig {
  /// Largest size of a function's state, in either record, that `restore` can take.
  static constexpr std::size_t kStateMax = 64;
  /// Returns the offset of the function's state in a record's state. If the tracker follows
  /// packets, its `Life` comes first.
  std::size_t state_offset() const {
    const std::size_t own = checks ? kCheckedLifeBytes : kLifeBytes;
    return follows ? (own + state_alignment - 1) / state_alignment * state_alignment : 0;
  }

  std::size_t capacity = 0;  ///< connections that the tables promise to hold
  /// Size of the function's state in an originator's record.
  std::size_t state_bytes = 0;
  /// Size of the function's state in a reply's record; without a value there are no replies'
  /// entries.
  std::optional<std::size_t> reply_state_bytes;
  std::size_t state_alignment = 2;  ///< alignment of both states, if `follows`: 1, 2, 4 or 8
  /// True: the line calls `follow`. False: every connection has the timeout of the state `none`.
  bool follows = false;
  /// True: `follow` finds packets that cannot be of their connection, if the tracker follows
  /// packets and has replies' entries.
  bool checks = false;
  Timeouts timeouts;
  MakeAgeing* ageing = nullptr;
  std::uint32_t interval_ms = 10;  ///< resolution of deadlines, 1 to 1000
  unsigned shards = 0;  ///< number of shards, each with a list of its connections; 0: no lists
  std::size_t half_open = INT64_MAX;  ///< limit of half-open connections
  /// True: shards may have a copy at another server (copied_shards.h). With `shards` only.
  bool copies = false;
  bool evicts = false;  ///< true: a proved connection may evict one of lower worth
  Pages pages = Pages::huge;
  Secret secret;
};

}  // namespace millrace
