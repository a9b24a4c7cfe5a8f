// What the tracker keeps of a connection's life, in both of its entries, in front of the function's
// state. Under sharing several workers may read and write it at once: accesses are atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "conntrack/state.h"

namespace millrace {

struct Life {
  /// Of TCP whose replies come this way: the sequence number that this side sends next, as its
  /// packets told, 0 while none did. Else the tick at which the connection began.
  std::uint32_t mark = 0;
  ConnectionState state = ConnectionState::none;
  std::uint8_t owner = 0;  ///< the worker that opened it; in the originator's entry
};

/// Bytes of it in front of a function's state.
inline constexpr std::size_t kLifeBytes = 6;

inline std::atomic_ref<std::uint32_t> mark_of(Life& life) { return std::atomic_ref(life.mark); }
inline std::atomic_ref<ConnectionState> state_of(Life& life) { return std::atomic_ref(life.state); }
inline std::uint32_t load_mark(Life& life) { return mark_of(life).load(std::memory_order_relaxed); }
inline void store_mark(Life& life, std::uint32_t mark) {
  mark_of(life).store(mark, std::memory_order_relaxed);
}
inline ConnectionState load_state(Life& life) {
  return state_of(life).load(std::memory_order_relaxed);
}
inline void store_state(Life& life, ConnectionState state) {
  state_of(life).store(state, std::memory_order_relaxed);
}

}  // namespace millrace
