// What several workers may change in an entry at once: when it was last seen, and its peer.
#pragma once

#include <atomic>
#include <cstdint>

#include "millrace/record.h"
#include "millrace/types.h"

namespace millrace {

/// In the place of a peer: the connection is not confirmed. No id is so large.
inline constexpr ConnId kUnconfirmed{0xfffffffe};

template <class K>
Tick seen(const RecordHeader<K>& header) {
  auto& ms = const_cast<std::uint32_t&>(header.last_seen.ms);
  return {std::atomic_ref(ms).load(std::memory_order_relaxed)};
}
template <class K>
void see(RecordHeader<K>& header, Tick now) {
  std::atomic_ref(header.last_seen.ms).store(now.ms, std::memory_order_relaxed);
}
/// Unless another worker has seen it meanwhile.
template <class K>
void see_later(RecordHeader<K>& header, Tick was, Tick later) {
  if (was.ms == later.ms) return;
  std::atomic_ref(header.last_seen.ms)
      .compare_exchange_strong(was.ms, later.ms, std::memory_order_relaxed);
}

/// What was written before is seen by who reads that peer (`peer_of`, record.h).
template <class K>
void set_peer(RecordHeader<K>& header, ConnId peer) {
  std::atomic_ref(header.peer).store(peer, std::memory_order_release);
}

}  // namespace millrace
