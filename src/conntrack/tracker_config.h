// What a tracker is told when it is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "conntrack/ageing/ageing.h"
#include "conntrack/life.h"
#include "conntrack/state.h"
#include "millrace/hash.h"
#include "millrace/memory.h"

namespace millrace {

/// Idle time after which a connection ends, by its state.
struct Timeouts {
  std::array<std::uint32_t, kConnectionStates> ms{};

  std::uint32_t operator[](ConnectionState state) const {
    return ms[static_cast<std::size_t>(state)];
  }

  std::int32_t least() const { return static_cast<std::int32_t>(std::ranges::min(ms)); }

  static Timeouts all(std::uint32_t ms) {
    Timeouts timeouts;
    timeouts.ms.fill(ms);
    return timeouts;
  }
};

struct TrackerConfig {
  static constexpr std::size_t kStateMax = 64;
  /// Where the function's state begins in a record's: behind what the tracker keeps, if it follows.
  std::size_t state_offset() const {
    return follows ? (kLifeBytes + state_alignment - 1) / state_alignment * state_alignment : 0;
  }

  std::size_t capacity = 0;     ///< connections promised
  std::size_t state_bytes = 0;  ///< function's, in the originator's record: `kStateMax` at most
  std::optional<std::size_t> reply_state_bytes;  ///< and in the reply's; none: no reply entries
  std::size_t state_alignment = 2;               ///< of both, where it follows: 1, 2, 4 or 8
  bool follows = false;  ///< packets are told to `follow`; else all timeouts are that of `none`
  Timeouts timeouts;
  MakeAgeing* ageing = nullptr;
  std::uint32_t interval_ms = 10;     ///< of ageing
  unsigned shards = 0;                ///< of connections that may move; 0: none may
  std::size_t half_open = INT64_MAX;  ///< connections that nothing has proved, at most
  bool evicts = false;  ///< who is proved finds room at the cost of who would be missed less
  Pages pages = Pages::huge;
  Secret secret;
};

}  // namespace millrace
