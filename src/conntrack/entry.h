// The fields of an entry that several workers may change at once: the tick of its latest packet,
// and its peer.
#pragma once

#include <atomic>
#include <cstdint>

#include "millrace/record.h"
#include "millrace/types.h"

namespace millrace {

/// The `peer` of an entry without a confirmed connection. No entry has this id.
inline constexpr ConnId kUnconfirmed{0xfffffffe};

/// Returns the tick of the latest packet that matched the entry.
template <class K>
Tick seen(const RecordHeader<K>& header) {
  auto& ms = const_cast<std::uint32_t&>(header.last_seen.ms);
  return {std::atomic_ref(ms).load(std::memory_order_relaxed)};
}
/// Sets the tick of the latest packet that matched the entry.
template <class K>
void see(RecordHeader<K>& header, Tick now) {
  std::atomic_ref(header.last_seen.ms).store(now.ms, std::memory_order_relaxed);
}
/// Changes the tick from `was` to `is`, unless another worker has changed it meanwhile.
template <class K>
void see_instead(RecordHeader<K>& header, Tick was, Tick is) {
  if (was.ms == is.ms) return;
  std::atomic_ref(header.last_seen.ms)
      .compare_exchange_strong(was.ms, is.ms, std::memory_order_relaxed);
}

/// Sets the peer. The store releases: a worker that reads this peer (`peer_of`, record.h) sees all
/// that was written before.
template <class K>
void set_peer(RecordHeader<K>& header, ConnId peer) {
  std::atomic_ref(header.peer).store(peer, std::memory_order_release);
}

}  // namespace millrace
