// Numbers of proved connections of each source, which is an address or a prefix: one small table
// for all workers and both address families, so that a limit holds whichever workers have the
// connections.
//
//   line   8 slots in 64 bytes; each source has two home lines
//   slot   | fingerprint of the source's hash 32 | changes 8 | count 24 |    count 0: empty
//
// Invariants:
//  1. The number of a source is the sum of the counts with the source's fingerprint in the source's
//     home lines. Most sources have one slot; if two workers claim a slot for one source at the
//     same time, that source has two.
//  2. A connection that was counted stays in the count of one of these slots until it is given
//     back. A slot with a count of 0 is empty. Each change of a slot changes its value, so two
//     equal reads mean that the slot held that value in between, unless 256 changes came between
//     them.
//  3. Unless the limit was lowered, the number of a source exceeds the limit by at most one for
//     each other worker: before a worker counts a connection, it has seen all slots of the source
//     at one instant, after its own last count, and their sum was below the limit. A connection
//     that another process has proved counts beyond the limit (`take` with `most`).
//
// There are two slots for each connection, and a source claims a slot in the emptier of its lines.
// If both lines are full, which practically never happens, the connection is admitted uncounted,
// and the caller remembers that. Two sources with a common line and the same fingerprint share one
// limit: of the pairs of sources with a common line, one in 2^32.
//
// The hash is keyed: an attacker cannot choose the source that it shares a limit with.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

/// The limit of a source, and what a source is.
struct SourceLimit {
  std::uint32_t most = 0;   ///< limit of one source's proved connections; 0: no limit
  unsigned prefix_v4 = 32;  ///< leading bits of an IPv4 address that identify the source
  unsigned prefix_v6 = 64;  ///< leading bits of an IPv6 address that identify the source

  static constexpr std::uint32_t kMost = 16'000'000;
};

/// Counts proved connections by source. Any thread may call every function but `total`.
class SourceCounts {
 public:
  /// Makes room for `connections` connections, of both families together. Errors (failed): no
  /// memory.
  static Result<SourceCounts> create(const SourceLimit& limit, std::size_t connections, Pages pages,
                                     const Secret& secret);

  /// Returns the source of an originator's key: a hash of the address's prefix and the zone.
  template <class A>
  Hash source_of(const Key<A>& key) const {
    const A& mask = std::get<A>(masks_);
    Key<A> source;
    for (std::size_t i = 0; i < A::kBytes; ++i)
      source.source.bytes[i] = key.source.bytes[i] & mask.bytes[i];
    source.zone = key.zone;
    return hasher_(source);
  }

  enum class Taken : std::uint8_t {
    counted,    ///< counted, to be given back
    uncounted,  ///< admitted without a count: no slot was free
    full,       ///< refused: the source is at its limit
  };
  /// Counts one more connection of the source, unless the source is at its limit.
  Taken take(Hash source) { return take(source, most()); }
  /// Counts one more connection of the source, with `most` as the limit, for instance for a
  /// connection that another process has proved.
  Taken take(Hash source, std::uint32_t most);
  /// Subtracts one connection that `take` has counted. False if no count of the source is found.
  [[nodiscard]] bool give_back(Hash source);
  /// True if the source is below its limit.
  bool has_room(Hash source) const { return count(source) < most(); }
  std::uint64_t count(Hash source) const { return sum(read(source), fingerprint_of(source)); }

  std::uint32_t most() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(limit_.most)).load(std::memory_order_relaxed);
  }
  /// Sets the limit for connections that are proved from now on. `most` must not be 0.
  void set_most(std::uint32_t most) {
    std::atomic_ref(limit_.most).store(most, std::memory_order_relaxed);
  }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }
  /// Returns the number of counted connections. No thread may change the table meanwhile.
  std::uint64_t total() const;

 private:
  static constexpr unsigned kSlots = 8;
  static constexpr unsigned kCountBits = 24;
  static constexpr unsigned kChangeBits = 8;
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << kCountBits) - 1;
  static constexpr std::uint64_t kChanges = ((std::uint64_t{1} << kChangeBits) - 1) << kCountBits;
  static constexpr std::uint64_t kFingerprint = ~(kChanges | kCount);
  static_assert(SourceLimit::kMost + 1024 < kCount);  // a count above the limit fits, too

  using Line = std::array<std::uint64_t, kSlots>;
  static_assert(sizeof(Line) == 64);
  /// The slots of both home lines, as they were read one after the other.
  using Seen = std::array<std::uint64_t, std::size_t{2} * kSlots>;

  SourceCounts(const SourceLimit& limit, Memory memory, std::size_t lines, const Secret& secret)
      : limit_(limit), hasher_(secret), memory_(std::move(memory)), lines_(lines) {
    set_mask(std::get<AddressV4>(masks_), limit.prefix_v4);
    set_mask(std::get<AddressV6>(masks_), limit.prefix_v6);
  }

  template <class A>
  static void set_mask(A& mask, unsigned bits) {
    for (unsigned bit = 0; bit < bits; ++bit)
      mask.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80U >> bit % 8);
  }

  static std::uint64_t fingerprint_of(Hash source) { return source & kFingerprint; }
  static bool is_empty(std::uint64_t slot) { return (slot & kCount) == 0; }
  static bool is_of(std::uint64_t slot, std::uint64_t fingerprint) {
    return !is_empty(slot) && (slot & kFingerprint) == fingerprint;
  }
  /// Returns the value that replaces `slot`: with that fingerprint and count, and one more change.
  static std::uint64_t changed(std::uint64_t slot, std::uint64_t fingerprint, std::uint64_t count) {
    return fingerprint | ((slot + kCount + 1) & kChanges) | count;
  }
  static std::uint64_t sum(const Seen& seen, std::uint64_t fingerprint) {
    std::uint64_t count = 0;
    for (const std::uint64_t slot : seen) count += is_of(slot, fingerprint) ? slot & kCount : 0;
    return count;
  }
  static unsigned place_for(const Seen& seen, std::uint64_t fingerprint);
  static constexpr unsigned kNone = 2 * kSlots;

  /// Returns two different lines. All bits of the hash choose them, so that the fingerprint still
  /// tells apart the sources of a line.
  std::array<std::size_t, 2> homes_of(Hash source) const {
    const auto scaled = [this](std::uint64_t mixed) {
      return static_cast<std::size_t>((mixed >> 32) * lines_ >> 32);
    };
    const std::size_t first = scaled(source * 0x9e3779b97f4a7c15);
    const std::size_t second = scaled((source ^ source >> 29) * 0xbf58476d1ce4e5b9);
    return {first, second != first ? second : (first + 1) % lines_};
  }
  std::atomic_ref<std::uint64_t> slot(const std::array<std::size_t, 2>& homes, unsigned at) const {
    auto* lines = reinterpret_cast<Line*>(memory_.data());
    return std::atomic_ref(lines[homes[at / kSlots]][at % kSlots]);
  }
  Seen read(const std::array<std::size_t, 2>& homes) const {
    Seen seen;
    for (unsigned at = 0; at < seen.size(); ++at)
      seen[at] = slot(homes, at).load(std::memory_order_acquire);
    return seen;
  }
  Seen read(Hash source) const { return read(homes_of(source)); }

  SourceLimit limit_;
  Hasher hasher_;
  std::tuple<AddressV4, AddressV6> masks_;  // the bits that identify a source
  Memory memory_;
  std::size_t lines_;
};

inline Result<SourceCounts> SourceCounts::create(const SourceLimit& limit, std::size_t connections,
                                                 Pages pages, const Secret& secret) {
  const std::size_t lines = 2 + 2 * connections / kSlots;
  auto memory = Memory::map(lines * sizeof(Line), pages);
  if (!memory) return std::unexpected(memory.error());
  return SourceCounts(limit, std::move(*memory), lines, secret);
}

/// Returns the slot in which to count one more connection of that fingerprint: a slot with the
/// fingerprint, else an empty slot of the emptier line, else kNone.
inline unsigned SourceCounts::place_for(const Seen& seen, std::uint64_t fingerprint) {
  std::array<unsigned, 2> empty{};
  std::array<unsigned, 2> first{kNone, kNone};
  for (unsigned at = 0; at < seen.size(); ++at) {
    if (is_of(seen[at], fingerprint)) return at;
    if (!is_empty(seen[at])) continue;
    if (empty[at / kSlots]++ == 0) first[at / kSlots] = at;
  }
  return empty[1] > empty[0] ? first[1] : first[0];
}

inline auto SourceCounts::take(Hash source, std::uint32_t most) -> Taken {
  const auto homes = homes_of(source);
  const std::uint64_t fingerprint = fingerprint_of(source);
  for (;;) {
    const Seen seen = read(homes);
    if (sum(seen, fingerprint) >= most) return Taken::full;
    if (read(homes) != seen) continue;  // `seen` may mix values of two instants
    const unsigned at = place_for(seen, fingerprint);
    if (at == kNone) return Taken::uncounted;
    std::uint64_t was = seen[at];
    const std::uint64_t more = changed(was, fingerprint, (was & kCount) + 1);
    if (slot(homes, at).compare_exchange_strong(was, more, std::memory_order_acq_rel))
      return Taken::counted;
  }
}

inline bool SourceCounts::give_back(Hash source) {
  const auto homes = homes_of(source);
  const std::uint64_t fingerprint = fingerprint_of(source);
  // The count is there (invariant 2), but a pass over the slots may miss it while other workers
  // take and give back.
  constexpr unsigned kLooks = 1 << 16;
  for (unsigned looks = 0; looks < kLooks; ++looks) {
    for (unsigned at = 0; at < kNone; ++at) {
      const auto place = slot(homes, at);
      std::uint64_t was = place.load(std::memory_order_acquire);
      while (is_of(was, fingerprint)) {
        const std::uint64_t less = changed(was, fingerprint, (was & kCount) - 1);
        if (place.compare_exchange_weak(was, less, std::memory_order_acq_rel)) return true;
      }
    }
  }
  return false;
}

inline std::uint64_t SourceCounts::total() const {
  std::uint64_t all = 0;
  for (std::size_t line = 0; line < lines_; ++line) {
    for (unsigned at = 0; at < kSlots; ++at) all += slot({line, line}, at).load() & kCount;
  }
  return all;
}

}  // namespace millrace
