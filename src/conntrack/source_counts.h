// How many proved connections each source has, a source being an address or a prefix: one small
// table for all workers and both families, so that a limit holds wherever connections go.
//
//   line   8 slots in 64 bytes; each source has two home lines
//   slot   | fingerprint of the source's hash 32 | changes 8 | count 24 |    count 0: empty
//
// Invariants:
//  1. A source has as many as the slots of its home lines that have its fingerprint sum up to. Most
//     have one; where two workers claim one at once there are two.
//  2. What was taken stands in one of them until it is given back. A slot whose count falls to zero
//     is empty. Each change shows, unless 256 come between two looks: looks that see the same have
//     seen what stood there between.
//  3. A source never has more than the limit and one for each other worker: who takes one has seen
//     all of its slots at one instant below the limit since it took its last one.
//
// There are two slots a connection, and a source takes one in the emptier of its lines: that both
// are full is practically impossible, and goes uncounted then, which the taker remembers. Two
// sources that share a line and a fingerprint, one pair in 2^32, share their limit.
//
// The hash is keyed: nobody can choose whom to share with.
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

struct SourceLimit {
  std::uint32_t most = 0;   ///< proved connections of one source; 0: no limit
  unsigned prefix_v4 = 32;  ///< bits of an address that are one source
  unsigned prefix_v6 = 64;

  static constexpr std::uint32_t kMost = 16'000'000;
};

/// Any thread may call all but `total`.
class SourceCounts {
 public:
  /// For so many connections, of both families. Errors (failed): no memory.
  static Result<SourceCounts> create(const SourceLimit& limit, std::size_t connections, Pages pages,
                                     const Secret& secret);

  /// The source of an originator's key, zone included.
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
    counted,    ///< to be given back
    uncounted,  ///< admitted, although there was no slot
    full,       ///< it is at its limit
  };
  Taken take(Hash source) { return take(source, most()); }
  /// As if it might have so many.
  Taken take(Hash source, std::uint32_t most);
  /// What `take` has counted. False: it had not.
  [[nodiscard]] bool give_back(Hash source);
  bool has_room(Hash source) const { return count(source) < most(); }
  std::uint64_t count(Hash source) const { return sum(look(source), fingerprint_of(source)); }

  std::uint32_t most() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(limit_.most)).load(std::memory_order_relaxed);
  }
  /// Of what is proved from now on; not 0.
  void set_most(std::uint32_t most) {
    std::atomic_ref(limit_.most).store(most, std::memory_order_relaxed);
  }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }
  /// At rest: all that were taken and not given back.
  std::uint64_t total() const;

 private:
  static constexpr unsigned kSlots = 8;
  static constexpr unsigned kCountBits = 24;
  static constexpr unsigned kChangeBits = 8;
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << kCountBits) - 1;
  static constexpr std::uint64_t kChanges = ((std::uint64_t{1} << kChangeBits) - 1) << kCountBits;
  static constexpr std::uint64_t kFingerprint = ~(kChanges | kCount);
  static_assert(SourceLimit::kMost + 1024 < kCount);  // no overshoot reaches the fingerprint

  using Line = std::array<std::uint64_t, kSlots>;
  static_assert(sizeof(Line) == 64);
  /// Both home lines, one after the other.
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
  /// What follows a slot's value: another count of that fingerprint.
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

  /// Different ones, by all bits of the hash, so that the fingerprint tells more than they do.
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
  Seen look(const std::array<std::size_t, 2>& homes) const {
    Seen seen;
    for (unsigned at = 0; at < seen.size(); ++at)
      seen[at] = slot(homes, at).load(std::memory_order_acquire);
    return seen;
  }
  Seen look(Hash source) const { return look(homes_of(source)); }

  SourceLimit limit_;
  Hasher hasher_;
  std::tuple<AddressV4, AddressV6> masks_;  // the bits that are a source
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

/// Where one more of that fingerprint is counted: in a slot of its own, or an empty one of the
/// emptier line; kNone where there is none.
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
    const Seen seen = look(homes);
    if (sum(seen, fingerprint) >= most) return Taken::full;
    if (look(homes) != seen) continue;  // what was seen one by one was not there at one instant
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
  // It is there (invariant 2), but a look may miss it while others take and give back.
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
