// The tracker's own data of a connection, in both of its entries, in front of the function's state.
// If workers share tables, several of them may read and write this data at once: accesses are
// atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "conntrack/state.h"
#include "conntrack/windows.h"

namespace millrace {

/// The proof that a connection is real, and the limits that count the connection since then. A
/// connection that was added to a limit's count must be subtracted from it exactly once.
enum class Proof : std::uint8_t {
  none,                ///< no packet has proved the connection: it counts as half open
  service,             ///< the limit of its service counts it
  service_and_source,  ///< the limits of its service and of its source count it
  past,                ///< no limit counts it: both sides, or the only side seen, have closed it
};
/// True if a limit counts the connection.
constexpr bool holds(Proof proof) {
  return proof == Proof::service || proof == Proof::service_and_source;
}

/// A connection's state and its proof in one byte, so that both change in one atomic step:
///
///     7       6 5     4 .. 0
///     ended   proof   state
///
/// With shared tables the worker that ends a connection sets `ended`. No worker changes the byte
/// afterwards, so the proof in it says what is to be given back. If bits 7 to 5 are all set, the
/// entry is a reply's and holds a copy of the state; only the originator's entry holds the proof.
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
    // A proof `past` has nothing to give back, and together with `ended` would look like a reply's
    // entry.
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

/// The tracker's data in one entry.
struct Life {
  /// TCP: the sequence number that this side sends next, as its packets show. SCTP: the
  /// verification tag of this side's packets. Of both: 0 if no packet has shown it, or if the
  /// replies do not pass here. Other protocols: the tick at which the connection began.
  std::uint32_t mark = 0;
  Standing standing;
  /// In the originator's entry: the number of the worker that opened the connection. In the reply's
  /// entry: the connection's `Windows`.
  std::uint8_t owner_or_windows = 0;
};

/// Bytes of a `Life` in front of a function's state.
inline constexpr std::size_t kLifeBytes = 6;
static_assert(offsetof(Life, owner_or_windows) + 1 == kLifeBytes);
static_assert(std::atomic_ref<Standing>::is_always_lock_free);

/// A tracker that checks packets has this in each entry behind the `Life`, so that most segments
/// are judged by their own entry, without a cache miss for the opposite one.
struct Acknowledged {
  static constexpr std::size_t kPlace = 8;  ///< bytes from the `Life`
  /// TCP: the greatest number that this side has acknowledged, as its packets show; 0 if no packet
  /// has shown it. The opposite side's mark is at least that far, but its entry may not say so yet.
  std::uint32_t number = 0;
};
/// Bytes of a `Life` and an `Acknowledged` in front of a function's state.
inline constexpr std::size_t kCheckedLifeBytes = Acknowledged::kPlace + sizeof(Acknowledged);

/// A connection's life in a form that the tracker of another worker or process can restore. The
/// form has no ticks, as these differ between processes.
struct LifeImage {
  std::uint32_t idle_ms = 0;
  /// `Life::mark` of the originator's entry; if that is a tick, the connection's age in ms.
  std::uint32_t mark = 0;
  /// `Life::mark` of the reply's entry; if that is a tick, the connection's age in ms.
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
inline std::uint32_t load_number(Acknowledged& of) {
  return std::atomic_ref(of.number).load(std::memory_order_relaxed);
}
inline void store_number(Acknowledged& of, std::uint32_t number) {
  std::atomic_ref(of.number).store(number, std::memory_order_relaxed);
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

/// Returns the last standing of a connection that ends. `kShared`: also sets `ended`, as other
/// workers may be changing the standing.
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
