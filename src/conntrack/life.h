// What the tracker keeps of a connection's life, in both of its entries, in front of the function's
// state. Under sharing several workers may read and write it at once: accesses are atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "conntrack/state.h"
#include "conntrack/windows.h"

namespace millrace {

/// Whether a packet has proved a connection to be real, and what that has taken of limits, to be
/// given back once.
enum class Proof : std::uint8_t {
  none,                ///< nothing has: it counts as half open
  service,             ///< it counts for its service's limit
  service_and_source,  ///< and for its source's
  past,                ///< given back: who is seen of its sides has ended it
};
constexpr bool holds(Proof proof) {
  return proof == Proof::service || proof == Proof::service_and_source;
}

/// A connection's state and its proof in one byte, so that they change as one:
///
///     7       6 5     4 .. 0
///     ended   proof   state
///
/// Who ends it sets `ended`; nobody changes it from then on, so that what is to be given back is
/// what stands there. Where bits 7 to 5 are all set this is a reply's entry, which has a copy of
/// the state; of its connection's proof only the originator's entry tells.
class Standing {
 public:
  constexpr Standing() = default;
  constexpr explicit Standing(ConnectionState state, Proof proof = Proof::none)
      : bits_(static_cast<std::uint8_t>(static_cast<unsigned>(state) | static_cast<unsigned>(proof)
                                                                           << kStateBits)) {}

  static constexpr Standing of_reply(ConnectionState state) {
    Standing copy(state);
    copy.bits_ |= kOfReply;
    return copy;
  }
  constexpr bool is_of_reply() const { return bits_ >= kOfReply; }

  constexpr ConnectionState state() const {
    return static_cast<ConnectionState>(bits_ & ((1U << kStateBits) - 1));
  }
  constexpr Proof proof() const {
    return static_cast<Proof>((bits_ & (kEnded - 1U)) >> kStateBits);
  }
  constexpr bool has_ended() const { return (bits_ & kEnded) != 0; }
  constexpr Standing ended() const {
    // What was given back is nothing to give back.
    Standing last = proof() == Proof::past ? Standing(state()) : *this;
    last.bits_ |= kEnded;
    return last;
  }
  friend constexpr bool operator==(Standing, Standing) = default;

 private:
  static constexpr unsigned kStateBits = 5;
  static constexpr std::uint8_t kEnded = 0x80;
  static constexpr std::uint8_t kOfReply = 0xe0;
  static_assert(kConnectionStates <= 1U << kStateBits);
  static_assert(static_cast<unsigned>(Proof::past) << kStateBits < kEnded);

  std::uint8_t bits_ = 0;
};
static_assert(sizeof(Standing) == 1);

struct Life {
  /// Of TCP whose replies come this way: the sequence number that this side sends next, as its
  /// packets told, 0 while none did. Else the tick at which the connection began.
  std::uint32_t mark = 0;
  Standing standing;
  /// In the originator's entry the worker that opened it; in the reply's its `Windows`.
  std::uint8_t owner_or_windows = 0;
};

/// Bytes of it in front of a function's state.
inline constexpr std::size_t kLifeBytes = 6;
static_assert(offsetof(Life, owner_or_windows) + 1 == kLifeBytes);
static_assert(std::atomic_ref<Standing>::is_always_lock_free);

/// A connection's life as another worker, or another process, takes it over, whose ticks are
/// others.
struct LifeImage {
  std::uint32_t idle_ms = 0;
  /// `Life::mark` of the originator's entry, and of the reply's. Where that is a tick, how long
  /// ago.
  std::uint32_t mark = 0;
  std::uint32_t reply_mark = 0;
  Standing standing;
  Windows windows;
};

inline std::atomic_ref<std::uint32_t> mark_of(Life& life) { return std::atomic_ref(life.mark); }
inline std::atomic_ref<Standing> standing_of(Life& life) { return std::atomic_ref(life.standing); }
inline std::uint32_t load_mark(Life& life) { return mark_of(life).load(std::memory_order_relaxed); }
inline void store_mark(Life& life, std::uint32_t mark) {
  mark_of(life).store(mark, std::memory_order_relaxed);
}
inline Windows load_windows(Life& life) {
  return Windows::from_byte(std::atomic_ref(life.owner_or_windows).load(std::memory_order_relaxed));
}
inline void store_windows(Life& life, Windows windows) {
  std::atomic_ref(life.owner_or_windows).store(windows.byte(), std::memory_order_relaxed);
}
inline Standing load_standing(Life& life) {
  return standing_of(life).load(std::memory_order_relaxed);
}
inline ConnectionState load_state(Life& life) { return load_standing(life).state(); }
inline void store_standing(Life& life, Standing standing) {
  standing_of(life).store(standing, std::memory_order_relaxed);
}

/// Ends it; what stood there last. `kShared`: others may be changing it.
template <bool kShared>
Standing mark_ended(Life& life) {
  Standing last = load_standing(life);
  if constexpr (kShared) {
    while (!standing_of(life).compare_exchange_weak(last, last.ended(), std::memory_order_acq_rel,
                                                    std::memory_order_relaxed)) {
    }
  }
  return last;
}

}  // namespace millrace
