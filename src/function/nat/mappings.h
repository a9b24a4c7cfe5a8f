// The mappings of one port block and one protocol: which inside endpoint has which port, and which
// remote addresses may send to it.
//
// Mappings are found by a hash of the inside endpoint (and of the remote end, as far as the pool's
// mapping depends on it), so that the endpoint's next session finds its port. Each port knows its
// mapping's place, so that packets from outside find the endpoint. Ports are chosen in turn from a
// random one on: the port that was freed first is used again first.
//
// The memory belongs to the caller. One thread at a time may use the mappings of a block.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "core/protocol.h"
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

/// An open-addressed table of things that are counted. `T` has `hash(hasher)` and `is_same(other)`.
template <class T>
class CountedTable {
 public:
  struct Slot {
    T is;
    std::uint16_t uses = 0;  ///< 0: the place is free
  };

  CountedTable(std::span<Slot> slots, const Hasher& hasher) : slots_(slots), hasher_(&hasher) {}

  std::size_t size() const { return slots_.size(); }
  Slot& operator[](std::size_t place) const { return slots_[place]; }
  /// Returns the place where `wanted` is, or the free one where it would be. At least one place
  /// must be free.
  std::size_t place_of(const T& wanted) const {
    std::size_t at = home_of(wanted);
    while (slots_[at].uses != 0 && !slots_[at].is.is_same(wanted)) at = (at + 1) % size();
    return at;
  }
  /// Takes back a use. True: it was the last one, and the place is free. `moved(place)` is called
  /// for each other slot that moves, with its new place.
  template <class Moved>
  bool release(std::size_t place, Moved&& moved) const {
    if (--slots_[place].uses != 0) return false;
    std::size_t gap = place;
    for (std::size_t at = (gap + 1) % size(); slots_[at].uses != 0; at = (at + 1) % size()) {
      const std::size_t distance = (at - home_of(slots_[at].is)) % size();
      if (distance < (at - gap) % size()) continue;
      slots_[gap] = slots_[at];
      slots_[at].uses = 0;
      moved(gap);
      gap = at;
    }
    return true;
  }

 private:
  std::size_t home_of(const T& wanted) const { return wanted.hash(*hasher_) % size(); }

  std::span<Slot> slots_;  // a power of 2
  const Hasher* hasher_;
};

/// The ends by which a mapping is known: those parts of the remote end on which it does not depend
/// are 0.
struct MappedEnds {
  AddressV4 inside;
  AddressV4 remote;
  std::uint16_t inside_port = 0;
  std::uint16_t remote_port = 0;

  friend bool operator==(const MappedEnds&, const MappedEnds&) = default;
};

class Mappings {
 public:
  using Offset = std::uint16_t;  ///< a port's place in its block

  /// Returns the bytes that the mappings of `ports` ports need; a power of 2, 64 to 4096.
  /// `has_peers`: `admit` and `is_admitted` may be called.
  static constexpr std::size_t bytes_for(std::size_t ports, bool has_peers) {
    return sizeof(std::uint64_t) + ports / 8 +
           ports * (kPlaces * sizeof(Slot) + (has_peers ? kPeers * sizeof(PeerSlot) : 0) +
                    sizeof(std::uint16_t));
  }

  /// `memory` has `bytes_for(ports, has_peers)` bytes, aligned to 8: all 0 if there are no
  /// mappings. `hasher` must outlive this.
  Mappings(std::byte* memory, std::size_t ports, bool has_peers, const Hasher& hasher)
      : peers_in_use_(reinterpret_cast<std::uint64_t*>(memory)),
        taken_(peers_in_use_ + 1, ports / 64),
        table_({reinterpret_cast<Slot*>(taken_.data() + taken_.size()), ports * kPlaces}, hasher),
        peers_({reinterpret_cast<PeerSlot*>(&table_[0] + table_.size()),
                has_peers ? ports * kPeers : 0},
               hasher),
        place_of_(reinterpret_cast<std::uint16_t*>(memory + bytes_for(ports, has_peers)) - ports,
                  ports) {}

  /// Returns the port that these ends have.
  std::optional<Offset> find(const MappedEnds& ends) const {
    const Slot& slot = table_[table_.place_of({ends})];
    return slot.uses != 0 ? std::optional(slot.is.offset) : std::nullopt;
  }
  /// Returns a free port, from the port `from` on; one of the parity of `like` if there is any.
  /// Ports for which `is_kept(port)` count as taken.
  template <class IsKept>
  std::optional<Offset> free_port(Offset from, Offset like, IsKept&& is_kept) const {
    constexpr std::uint64_t kEven = 0x5555555555555555;
    if (const auto found = free_among((like & 1) != 0 ? ~kEven : kEven, from, is_kept))
      return found;
    return free_among(~std::uint64_t{0}, from, is_kept);
  }
  /// True if the port has no mapping.
  bool is_free(Offset offset) const { return (taken_[offset / 64] >> offset % 64 & 1) == 0; }

  /// Gives these ends, which have no mapping, a free port. The mapping has one use.
  void insert(const MappedEnds& ends, Offset offset) const {
    const std::size_t at = table_.place_of({ends});
    table_[at] = {{ends, offset}, 1};
    place_of_[offset] = static_cast<std::uint16_t>(at);
    taken_[offset / 64] |= std::uint64_t{1} << offset % 64;
  }
  /// Returns the ends of a port that is not free.
  const MappedEnds& ends_of(Offset offset) const { return table_[place_of_[offset]].is.ends; }
  /// Counts a use of a port that is not free; there can be 65,535.
  void use(Offset offset) const { ++table_[place_of_[offset]].uses; }
  /// Takes back a use. True: it was the last one, and the port is free.
  bool release(Offset offset) const {
    const bool is_last = table_.release(place_of_[offset], [this](std::size_t place) {
      place_of_[table_[place].is.offset] = static_cast<std::uint16_t>(place);
    });
    if (is_last) taken_[offset / 64] &= ~(std::uint64_t{1} << offset % 64);
    return is_last;
  }
  std::size_t in_use() const {
    std::size_t count = 0;
    for (const std::uint64_t word : taken_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }

  /// @name The remote addresses that may send to a port
  /// Each is counted. If there is no room for one more, it is not remembered.
  /// @{
  void admit(Offset offset, const AddressV4& remote) const {
    PeerSlot& slot = peers_[peers_.place_of({remote, offset})];
    if (slot.uses == 0) {
      if (*peers_in_use_ >= peers_.size() / 8 * 7) return;
      slot.is = {remote, offset};
      ++*peers_in_use_;
    }
    ++slot.uses;
  }
  bool is_admitted(Offset offset, const AddressV4& remote) const {
    return peers_[peers_.place_of({remote, offset})].uses != 0;
  }
  void dismiss(Offset offset, const AddressV4& remote) const {
    const std::size_t at = peers_.place_of({remote, offset});
    if (peers_[at].uses != 0 && peers_.release(at, [](std::size_t) {})) --*peers_in_use_;
  }
  /// @}

 private:
  static constexpr std::size_t kPlaces = 2;  // places a port
  static constexpr std::size_t kPeers = 4;   // remote addresses a port, in the mean

  struct Mapping {
    MappedEnds ends;
    Offset offset = 0;

    Hash hash(const Hasher& hasher) const {
      return hasher(KeyV4{.source = ends.inside,
                          .destination = ends.remote,
                          .source_port = ends.inside_port,
                          .destination_port = ends.remote_port});
    }
    bool is_same(const Mapping& other) const { return ends == other.ends; }
  };
  struct Peer {
    AddressV4 remote;
    Offset offset = 0;

    Hash hash(const Hasher& hasher) const {
      return hasher(KeyV4{.source = remote, .destination = {}, .source_port = offset});
    }
    bool is_same(const Peer& other) const {
      return remote == other.remote && offset == other.offset;
    }
  };
  using Slot = CountedTable<Mapping>::Slot;
  using PeerSlot = CountedTable<Peer>::Slot;
  static_assert(sizeof(Slot) == 16 && sizeof(PeerSlot) == 8);

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

  std::uint64_t* peers_in_use_;
  std::span<std::uint64_t> taken_;  // ports, a bit each
  CountedTable<Mapping> table_;
  CountedTable<Peer> peers_;
  std::span<std::uint16_t> place_of_;  // by port
};

}  // namespace millrace
