// The mappings of one port block and one protocol: which inside endpoint has which port, and which
// remote addresses may send to it.
//
// Each port has a slot with the ends of its mapping, so that packets from outside find the
// endpoint. An index finds the port by a hash of the inside endpoint (and of the remote end, as far
// as the pool's mapping depends on it), so that the endpoint's next session finds its port. Ports
// are chosen in turn from a random one on: the port that was freed first is used again first.
//
// A mapping lives as long as it has uses. Those that hold it open are sessions that the inside has
// begun or answered; without one, strangers begin no more sessions there (RFC 4787, REQ-6).
//
// The memory belongs to the caller: 16 bytes a port and a bit; 22 if mappings depend on remote
// ends, 48 with peers. One thread at a time may use the mappings of a block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/protocol.h"
#include "core/relaxed.h"
#include "millrace/detail/prefetch.h"
#include "millrace/hash.h"
#include "millrace/key.h"

namespace millrace {

inline constexpr unsigned kNoSpace = 0xff;

/// Returns the number of a protocol's ports among all port numbers; `kNoSpace` if it has none.
constexpr unsigned space_of(std::uint8_t protocol) {
  switch (protocol) {
    case kProtocolTcp:
      return 0;
    case kProtocolUdp:
      return 1;
    case kProtocolIcmp:
      return 2;
    case kProtocolSctp:
      return 3;
    case kProtocolUdpLite:
      return 4;
    case kProtocolDccp:
      return 5;
    default:
      return kNoSpace;
  }
}

/// A hash table with linear probing, whose size is a power of 2. A value that is `T{}` is free, and
/// there is one at least.
template <class T>
class ProbedTable {
 public:
  explicit ProbedTable(std::span<T> values) : values_(values) {}

  std::size_t size() const { return values_.size(); }
  std::size_t home_of(Hash hash) const { return hash & (size() - 1); }
  T& operator[](std::size_t place) const { return values_[place]; }
  /// Returns the first place for which `is_it(value)`, or the free one where it would be.
  template <class IsIt>
  std::size_t place_of(Hash hash, IsIt&& is_it) const {
    std::size_t at = home_of(hash);
    while (!is_free(at) && !is_it(values_[at])) at = home_of(at + 1);
    return at;
  }
  bool is_free(std::size_t place) const { return values_[place] == T{}; }
  /// Makes a place free. Values behind it move up as far as `hash_of(value)` lets them.
  template <class HashOf>
  void erase(std::size_t place, HashOf&& hash_of) const {
    std::size_t gap = place;
    for (std::size_t at = home_of(gap + 1); !is_free(at); at = home_of(at + 1)) {
      const std::size_t distance = home_of(at - home_of(hash_of(values_[at])));
      if (distance < home_of(at - gap)) continue;
      values_[gap] = values_[at];
      gap = at;
    }
    values_[gap] = T{};
  }

 private:
  std::span<T> values_;
};

/// The ends by which a mapping is known: those parts of the remote end on which it does not depend
/// are 0.
struct MappedEnds {
  AddressV4 inside;
  AddressV4 remote;
  std::uint16_t inside_port = 0;
  std::uint16_t remote_port = 0;

  Hash hash(const Hasher& hasher) const {
    return hasher(KeyV4{.source = inside,
                        .destination = remote,
                        .source_port = inside_port,
                        .destination_port = remote_port});
  }
  friend bool operator==(const MappedEnds&, const MappedEnds&) = default;
};

class Mappings {
 public:
  using Offset = std::uint16_t;  ///< a port's place in its block

  struct Kind {
    std::size_t ports = 64;    ///< a power of 2, 64 to 4096
    bool has_remotes = false;  ///< mappings depend on remote ends
    bool has_peers = false;    ///< `admit` and `is_admitted` may be called

    /// Returns the bytes that the mappings need, whole cache lines.
    constexpr std::size_t bytes() const {
      const std::size_t each = kPlaces * sizeof(Entry) + sizeof(Slot) +
                               (has_remotes ? sizeof(Remote) : 0) +
                               (has_peers ? kPeers * sizeof(Peer) : 0);
      const std::size_t all = ports / 8 + ports * each + (has_peers ? sizeof(std::uint64_t) : 0);
      return (all + 63) / 64 * 64;
    }
  };

  /// `memory` has `kind.bytes()` bytes, aligned to 64. If there are no mappings, its first
  /// `kind.ports / 8` bytes are 0, and the others all 0 or as the latest mappings have left them.
  /// `hasher` must outlive this.
  Mappings(std::byte* memory, const Kind& kind, const Hasher& hasher)
      : taken_(reinterpret_cast<Word*>(memory), kind.ports / 64),
        index_({reinterpret_cast<Entry*>(taken_.data() + taken_.size()), kind.ports * kPlaces}),
        slots_(reinterpret_cast<Slot*>(&index_[0] + index_.size()), kind.ports),
        remotes_(reinterpret_cast<Remote*>(slots_.data() + slots_.size()),
                 kind.has_remotes ? kind.ports : 0),
        peers_in_use_(reinterpret_cast<std::uint64_t*>(remotes_.data() + remotes_.size())),
        peers_(
            {reinterpret_cast<Peer*>(peers_in_use_ + 1), kind.has_peers ? kind.ports * kPeers : 0}),
        hasher_(&hasher) {}

  /// Returns the port that these ends, with this hash, have.
  std::optional<Offset> find(const MappedEnds& ends, Hash hash) const {
    const Entry tag = tag_of(hash);
    const std::size_t at = index_.place_of(hash, [&](Entry entry) {
      return tag_in(entry) == tag && ends_of(offset_in(entry)) == ends;
    });
    return index_.is_free(at) ? std::nullopt : std::optional(offset_in(index_[at]));
  }
  /// Returns a free port, from the port `from` on; one of the parity of `like` if there is any.
  /// Ports for which `is_kept(port)` count as taken. Any thread may call this function at any time:
  /// it is a hint then.
  template <class IsKept>
  std::optional<Offset> free_port(Offset from, Offset like, IsKept&& is_kept) const {
    constexpr std::uint64_t kEven = 0x5555555555555555;
    if (const auto found = free_among((like & 1) != 0 ? ~kEven : kEven, from, is_kept))
      return found;
    return free_among(~std::uint64_t{0}, from, is_kept);
  }
  /// True if the port has no mapping.
  bool is_free(Offset offset) const { return (taken_[offset / 64] >> offset % 64 & 1) == 0; }

  /// Gives these ends, with this hash and no mapping, a free port. The mapping has one use.
  void insert(const MappedEnds& ends, Hash hash, Offset offset, bool holds = true) const {
    const std::size_t at = index_.place_of(hash, [](Entry) { return false; });
    index_[at] = static_cast<Entry>(tag_of(hash) | offset);
    slots_[offset] = {ends.inside, ends.inside_port, static_cast<std::uint16_t>(holds ? 1 : 0), 1};
    if (!remotes_.empty()) remotes_[offset] = {ends.remote, ends.remote_port};
    Word& word = taken_[offset / 64];
    word = word | std::uint64_t{1} << offset % 64;
  }
  /// Returns the ends of a port that is not free.
  MappedEnds ends_of(Offset offset) const {
    const Slot& slot = slots_[offset];
    MappedEnds ends{.inside = slot.inside, .remote = {}, .inside_port = slot.inside_port};
    if (remotes_.empty()) return ends;
    ends.remote = remotes_[offset].address;
    ends.remote_port = remotes_[offset].port;
    return ends;
  }
  /// Counts a use of a port that is not free. The number of those that hold the mapping open wraps
  /// around behind 65,535.
  void use(Offset offset, bool holds = true) const {
    ++slots_[offset].uses;
    if (holds) hold(offset);
  }
  /// Lets a use that is counted hold the mapping open from now on, or no longer.
  void hold(Offset offset) const { ++slots_[offset].holding; }
  void let_go(Offset offset) const { --slots_[offset].holding; }
  bool is_held(Offset offset) const { return slots_[offset].holding != 0; }
  /// Takes back a use. True: it was the last one, and the port is free.
  bool release(Offset offset, bool holds = true) const {
    if (holds) let_go(offset);
    if (--slots_[offset].uses != 0) return false;
    const Hash hash = hash_at(offset);
    const auto is = static_cast<Entry>(tag_of(hash) | offset);
    index_.erase(index_.place_of(hash, [is](Entry entry) { return entry == is; }),
                 [this](Entry entry) { return hash_at(offset_in(entry)); });
    Word& word = taken_[offset / 64];
    word = word & ~(std::uint64_t{1} << offset % 64);
    return true;
  }
  std::size_t in_use() const {
    std::size_t count = 0;
    for (const std::uint64_t word : taken_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }

  /// Prefetches what is needed to find the ends with that hash, and else to give them a port from
  /// `from` on. Any thread may call this function at any time.
  void prefetch(Hash hash, Offset from) const {
    detail::prefetch(&index_[index_.home_of(hash)]);
    detail::prefetch(&taken_[from / 64]);
    detail::prefetch(&slots_[from]);
    if (!remotes_.empty()) detail::prefetch(&remotes_[from]);
  }

  /// @name The remote addresses that may send to a port
  /// Each is counted. If there is no room for one more, it is not remembered.
  /// @{
  void admit(Offset offset, const AddressV4& remote) const {
    Peer& peer = peers_[place_of(offset, remote)];
    if (peer.uses == 0) {
      if (*peers_in_use_ >= peers_.size() / 8 * 7) return;
      peer = {remote, offset};
      ++*peers_in_use_;
    }
    ++peer.uses;
  }
  bool is_admitted(Offset offset, const AddressV4& remote) const {
    return peers_[place_of(offset, remote)].uses != 0;
  }
  void dismiss(Offset offset, const AddressV4& remote) const {
    const std::size_t at = place_of(offset, remote);
    if (peers_[at].uses == 0) return;
    if (--peers_[at].uses != 0) return;
    peers_.erase(at, [this](const Peer& peer) { return hash_of(peer.offset, peer.remote); });
    --*peers_in_use_;
  }
  /// @}

 private:
  static constexpr std::size_t kPlaces = 2;  // of the index, a port
  static constexpr std::size_t kPeers = 4;   // remote addresses a port, in the mean

  using Word = Relaxed<std::uint64_t>;
  static_assert(sizeof(Word) == sizeof(std::uint64_t));
  /// The low bits are a port, the others a part of the hash, which is never 0: most entries of
  /// other ends are told apart without a look at their slots. 0: free.
  using Entry = std::uint16_t;
  struct Slot {
    AddressV4 inside;
    std::uint16_t inside_port;
    std::uint16_t holding;  // of `uses`
    std::uint32_t uses;
  };
  struct Remote {
    AddressV4 address;
    std::uint16_t port;
  };
  struct Peer {
    AddressV4 remote;
    Offset offset = 0;
    std::uint16_t uses = 0;

    friend bool operator==(const Peer&, const Peer&) = default;
  };
  static_assert(sizeof(Slot) == 12 && sizeof(Remote) == 6 && sizeof(Peer) == 8);

  Offset offset_in(Entry entry) const { return static_cast<Offset>(entry & (slots_.size() - 1)); }
  Entry tag_in(Entry entry) const { return static_cast<Entry>(entry & ~(slots_.size() - 1)); }
  Entry tag_of(Hash hash) const {
    return std::max(tag_in(static_cast<Entry>(hash >> 48)), static_cast<Entry>(slots_.size()));
  }
  Hash hash_at(Offset offset) const { return ends_of(offset).hash(*hasher_); }
  Hash hash_of(Offset offset, const AddressV4& remote) const {
    return (*hasher_)(KeyV4{.source = remote, .destination = {}, .source_port = offset});
  }
  std::size_t place_of(Offset offset, const AddressV4& remote) const {
    return peers_.place_of(hash_of(offset, remote), [&](const Peer& peer) {
      return peer.offset == offset && peer.remote == remote;
    });
  }

  template <class IsKept>
  std::optional<Offset> free_among(std::uint64_t which, Offset from, IsKept&& is_kept) const {
    const std::size_t first = from / 64;
    const std::uint64_t behind = ~std::uint64_t{0} << from % 64;
    for (std::size_t n = 0; n <= taken_.size(); ++n) {
      const std::size_t at = (first + n) % taken_.size();
      std::uint64_t free = ~taken_[at] & which;
      if (n == 0) free &= behind;
      if (n == taken_.size()) free &= ~behind;
      for (; free != 0; free &= free - 1) {
        const auto offset =
            static_cast<Offset>(at * 64 + static_cast<unsigned>(std::countr_zero(free)));
        if (!is_kept(offset)) return offset;
      }
    }
    return std::nullopt;
  }

  std::span<Word> taken_;  // ports, a bit each
  ProbedTable<Entry> index_;
  std::span<Slot> slots_;      // by port
  std::span<Remote> remotes_;  // by port; empty: mappings do not depend on them
  std::uint64_t* peers_in_use_;
  ProbedTable<Peer> peers_;
  const Hasher* hasher_;
};

}  // namespace millrace
