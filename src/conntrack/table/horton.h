// `horton`: nearly every entry stands in the bucket that one hash function picks; each bucket keeps
// remap entries for the rest.
//
// After Breslow, Zhang, Greathouse, Jayasena and Tullsen, "Horton Tables: Fast Hash Tables for
// In-Memory Data-Intensive Computing", USENIX ATC'16; written from the paper's description.
// docs/horton.md lists the differences.
//
// A key's hash picks its primary bucket, and its tag picks one of that bucket's 21 groups. Entries
// that find no room in their primary bucket are *remapped*: the group's remap entry in the primary
// bucket is the number of the secondary function, 1 to 7, that picks the bucket of all remapped
// entries of the group (0: there are none). A secondary function computes a bucket from primary
// bucket and group. The remapped entries of a group therefore stand in one bucket, and primary and
// secondary bucket can be computed from each other without a key. A lookup reads the primary
// bucket, and a second one if the group is remapped.
//
//      0           16         48              56          60       64
//      +-----------+----------+---------------+-----------+--------+
//      | 8 tags    | 8 ids    | remap entries | functions | unused |
//      +-----------+----------+---------------+-----------+--------+
//      remap entries: 21 x 3 bits, one a group        functions: 8 x 3 bits, one for each slot's
//      63    62      60            2        0         entry; 0: this is its primary bucket
//      +----+----------+--     --+----------+
//      | -  | group 20 |   ...   | group 0  |
//      +----+----------+--     --+----------+
//
// Invariants (check_invariants quotes them):
//  1. A live entry has its key's tag and stands in the bucket that its slot's function picks for
//     its key's primary bucket and group.
//  2. A remap entry is the function of all entries of its group that are not in their primary
//     bucket, and 0 if there are none. The entries of a group therefore stand in at most two
//     buckets.
//  3. A key is live in one slot at most.
//  4. The ids of the live slots are the pool's live ids.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "conntrack/table/cuckoo_bucket.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// The part of a bucket that is `horton`'s own.
struct HortonOwn {
  static constexpr unsigned kGroups = 21;

  std::uint64_t remap = 0;
  std::uint32_t functions = 0;

  unsigned remapped(unsigned group) const { return static_cast<unsigned>(remap >> 3 * group) & 7U; }
  void set_remapped(unsigned group, unsigned function) {
    remap = (remap & ~(std::uint64_t{7} << 3 * group)) | std::uint64_t{function} << 3 * group;
  }
  unsigned function(unsigned slot) const { return functions >> 3 * slot & 7U; }
  void set_function(unsigned slot, unsigned function) {
    functions = (functions & ~(7U << 3 * slot)) | function << 3 * slot;
  }
};
static_assert(sizeof(HortonOwn) == 16 && offsetof(HortonOwn, functions) == 8);

/// The table.
template <class K>
class Horton {
  using Index = CuckooIndex<K, HortonOwn>;
  using Bucket = typename Index::Bucket;
  using Place = CuckooPlace;
  using Tag = CuckooTag;

 public:
  static constexpr std::string_view kName = "horton";
  static constexpr std::string_view kSummary =
      "8-slot buckets, nearly all entries in their primary bucket, remap entries for the rest";
  /// The load up to which practically no insertion is refused, under churn too.
  static constexpr double kMaxLoad = 0.95;
  static constexpr bool kKeyInRecord = true;

  static Result<Horton> create(const TableConfig& config) {
    auto index = Index::create(config, kMaxLoad);
    if (!index) return std::unexpected(index.error());
    return Horton(std::move(*index));
  }

  void prefetch(std::span<const Hash> hashes) const {
    for (const Hash hash : hashes) index_.prefetch(index_.first_of(hash));
  }

  /// Prefetches the record of the first slot with the key's tag, which is most probably the key's.
  Stragglers prefetch_records(std::span<const K>, std::span<const Hash> hashes) const {
    return index_.prefetch_matches(hashes, second());
  }
  void prefetch_stragglers(std::span<const K>, std::span<const Hash> hashes,
                           Stragglers stragglers) const {
    index_.prefetch_stragglers(hashes, stragglers, second());
  }

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers stragglers = {}) const {
    stragglers.for_each_last(keys.size(), [&](std::size_t i) {
      const Place place = probe(keys[i], hashes[i]);
      ids[i] = place ? index_.id(place) : ConnId::none;
    });
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash);

  void release(ConnId id) { index_.ids.release(id); }

  /// Walks in the order of ids, which do not move.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return index_.ids.walk(cursor, about, visit);
  }

  const Hasher& hasher() const { return index_.hasher; }
  const Records<K>& records() const { return index_.records; }
  std::size_t size() const { return index_.ids.live(); }
  std::size_t capacity() const { return index_.capacity; }
  std::size_t slots() const { return index_.slots(); }
  std::size_t memory_bytes() const { return index_.memory_bytes(); }
  Pages pages() const { return index_.pages(); }
  Result<void> check_invariants() const;

  struct Statistics {
    double primary_share = 0;     ///< share of live entries that stand in their primary bucket
    double buckets_per_hit = 0;   ///< mean number of buckets read to find a live key, 1 to 2
    double buckets_per_miss = 0;  ///< mean number of buckets read for an unknown key, 1 to 2
  };
  /// Returns statistics. Reads the whole index.
  Statistics statistics() const;

 private:
  static constexpr unsigned kGroups = HortonOwn::kGroups;
  static constexpr unsigned kFunctions = 7;  // numbered from 1; 0: the primary bucket

  /// A group of a primary bucket, and the function of its remapped entries.
  struct Remap {
    std::uint32_t primary;
    unsigned group;
    unsigned function;
  };
  /// A slot for an entry, and the function that picks the slot's bucket.
  struct Target {
    Place place;
    unsigned function = 0;
  };

  explicit Horton(Index index) : index_(std::move(index)) {}

  Bucket& bucket(std::uint32_t at) const { return index_.bucket(at); }
  HortonOwn& own(std::uint32_t at) const { return bucket(at).own; }

  static unsigned group_of(Tag tag) { return tag * kGroups >> 16; }
  /// Returns the secondary bucket of a primary bucket and, with the same group and function, the
  /// primary bucket of a secondary one.
  std::uint32_t across(std::uint32_t at, unsigned group, unsigned function) const {
    return index_.across(at, (group * 8U + function) * 0x9e3779b97f4a7c15 >> 30);
  }
  std::uint32_t secondary(const Remap& remap) const {
    return across(remap.primary, remap.group, remap.function);
  }
  Remap remap_at(std::uint32_t primary, unsigned group) const {
    return {primary, group, own(primary).remapped(group)};
  }
  /// Returns the remapping of an entry that stands in a secondary bucket.
  Remap remap_of(Place place) const {
    const unsigned group = group_of(index_.tag(place));
    const unsigned function = own(place.bucket).function(place.slot);
    return {across(place.bucket, group, function), group, function};
  }
  bool is_primary(Place place) const { return own(place.bucket).function(place.slot) == 0; }

  /// Returns a function that computes the secondary bucket of a tag's group, if that group is
  /// remapped.
  auto second() const {
    return [this](std::uint32_t primary, Tag tag) {
      const Remap remap = remap_at(primary, group_of(tag));
      return remap.function != 0 ? std::optional(secondary(remap)) : std::nullopt;
    };
  }
  Place probe(const K& key, Hash hash) const {
    const std::uint32_t primary = index_.first_of(hash);
    const Tag tag = Index::tag_for(hash);
    const Place place = index_.probe(primary, tag, key);
    if (place) [[likely]]
      return place;
    const Remap remap = remap_at(primary, group_of(tag));
    return remap.function == 0 ? place : index_.probe(secondary(remap), tag, key);
  }

  /// Returns a mask of the slots of the secondary bucket that hold entries of the remapped group.
  std::uint32_t members(const Remap& remap) const {
    std::uint32_t members = 0;
    index_.for_each_live(secondary(remap), [&](Place place) {
      if (own(place.bucket).function(place.slot) == remap.function &&
          group_of(index_.tag(place)) == remap.group)
        members |= 1U << place.slot;
    });
    return members;
  }

  template <WorthFunction W>
  Target target_for(std::uint32_t primary, Tag tag, const W& worth);
  template <WorthFunction W>
  Target least_worthy(std::uint32_t primary, unsigned group, const W& worth) const;
  Target make_room(std::uint32_t primary, Tag tag);
  bool evict_remapped(std::uint32_t at);
  bool evict_primary(std::uint32_t at);
  Target remapped_room(std::uint32_t primary, unsigned group);
  Target make_remapped_room(std::uint32_t primary, unsigned group);
  unsigned emptiest(std::uint32_t primary, unsigned group, unsigned needed) const;
  bool regroup(const Remap& remap, unsigned more);
  void bring_one_home(std::uint32_t primary);
  void move(Place from, const Target& to);

  /// Puts a tag into a free slot, and sets the slot's function and the group's remap entry.
  void occupy(const Target& target, std::uint32_t primary, Tag tag) {
    index_.tag(target.place) = tag;
    own(target.place.bucket).set_function(target.place.slot, target.function);
    if (target.function != 0) own(primary).set_remapped(group_of(tag), target.function);
  }
  /// Empties a slot. The last entry of a remapped group that leaves ends the remapping.
  void vacate(Place place) {
    const bool primary = is_primary(place);
    const Remap remap = remap_of(place);
    index_.tag(place) = 0;
    own(place.bucket).set_function(place.slot, 0);
    if (!primary && members(remap) == 0) own(remap.primary).set_remapped(remap.group, 0);
  }

  Index index_;
};

template <class K>
template <WorthFunction W>
Insertion Horton<K>::insert(const K& key, Hash hash, const W& worth) {
  if (const Place found = probe(key, hash)) {
    const ConnId id = index_.id(found);
    return Insertion::met(id, worth(id) != 0);
  }
  const std::uint32_t primary = index_.first_of(hash);
  const Tag tag = Index::tag_for(hash);
  const Target target = target_for(primary, tag, worth);
  if (!target.place) return {};
  ConnId displaced = ConnId::none;
  if (index_.tag(target.place) != 0) {
    displaced = index_.id(target.place);
    vacate(target.place);
  }
  const ConnId id = displaced != ConnId::none ? displaced : index_.ids.take();
  index_.id(target.place) = id;
  occupy(target, primary, tag);
  index_.records.header(id).key = key;
  index_.records.prefetch(index_.ids.upcoming());
  return {id, Insertion::Outcome::inserted, displaced};
}

/// If an id is free, returns a free slot, if need be after moving other entries. Without such a
/// slot or id, returns the slot of an entry to evict, or nowhere.
template <class K>
template <WorthFunction W>
auto Horton<K>::target_for(std::uint32_t primary, Tag tag, const W& worth) -> Target {
  if (index_.ids.free() != 0) {
    if (const Target target = make_room(primary, tag); target.place) return target;
  }
  if constexpr (std::is_same_v<W, KeepAll>)
    return {};
  else
    return least_worthy(primary, group_of(tag), worth);
}

template <class K>
template <WorthFunction W>
auto Horton<K>::least_worthy(std::uint32_t primary, unsigned group, const W& worth) const
    -> Target {
  Victim victim(worth, Target{});
  const auto consider_in = [&](std::uint32_t at, unsigned function) {
    index_.for_each_candidate(
        at, [&](Place place) { victim.consider(index_.id(place), {place, function}); });
  };
  consider_in(primary, 0);
  const Remap remap = remap_at(primary, group);
  if (remap.function != 0) consider_in(secondary(remap), remap.function);
  return victim.place();
}

/// Returns a free slot for a newcomer, or nowhere. Tries, in this order: the primary bucket; to
/// move a remapped group out of the primary bucket; a secondary bucket of the newcomer; to remap an
/// own entry of the primary bucket; to make room in a secondary bucket.
template <class K>
auto Horton<K>::make_room(std::uint32_t primary, Tag tag) -> Target {
  if (const Place place = index_.free_in(primary)) return {place, 0};
  if (evict_remapped(primary)) return {index_.free_in(primary), 0};
  if (const Target target = remapped_room(primary, group_of(tag)); target.place) return target;
  if (evict_primary(primary)) return {index_.free_in(primary), 0};
  return make_remapped_room(primary, group_of(tag));
}

/// Makes room in a bucket that a group may be remapped to, by moving other entries out of that
/// bucket. Returns the slot, or nowhere if no entry can be moved.
template <class K>
auto Horton<K>::make_remapped_room(std::uint32_t primary, unsigned group) -> Target {
  for (unsigned function = 1; function <= kFunctions; ++function) {
    const unsigned now = own(primary).remapped(group);
    if (now != 0 && now != function) continue;
    const std::uint32_t at = across(primary, group, function);
    // First tries to remap the bucket's own entries: `evict_remapped` might move the very group for
    // which room is sought.
    if (!evict_primary(at) && !evict_remapped(at)) continue;
    if (const Target target = remapped_room(primary, group); target.place) return target;
  }
  return {};
}

/// Makes room in a bucket: a group that is remapped to this bucket moves to another bucket. False
/// if no group can move.
template <class K>
bool Horton<K>::evict_remapped(std::uint32_t at) {
  bool done = false;
  index_.for_each_live(at, [&](Place place) {
    if (!done && !is_primary(place)) done = regroup(remap_of(place), 0);
  });
  return done;
}

/// Makes room in a bucket by remapping one of its own entries. False if no entry can be remapped.
template <class K>
bool Horton<K>::evict_primary(std::uint32_t at) {
  for (unsigned slot = 0; slot < Index::kSlots; ++slot) {
    const Place place{at, slot};
    if (!is_primary(place)) continue;
    const Target target = remapped_room(at, group_of(index_.tag(place)));
    if (!target.place) continue;
    move(place, target);
    return true;
  }
  return false;
}

/// Returns a slot for one more remapped entry of a group: in the group's secondary bucket; else in
/// another bucket that the whole group can move to; or, if no entry of the group is remapped yet,
/// in the emptiest of seven buckets. Nowhere if none of these has room.
template <class K>
auto Horton<K>::remapped_room(std::uint32_t primary, unsigned group) -> Target {
  Remap remap = remap_at(primary, group);
  if (remap.function == 0) {
    remap.function = emptiest(primary, group, 1);
    if (remap.function == 0) return {};
  } else if (bucket(secondary(remap)).free() == 0) {
    if (!regroup(remap, 1)) return {};
    remap = remap_at(primary, group);
  }
  return {index_.free_in(secondary(remap)), remap.function};
}

/// Returns the function that picks the emptiest of a group's seven secondary buckets, if that
/// bucket has at least `needed` free slots; else 0.
template <class K>
unsigned Horton<K>::emptiest(std::uint32_t primary, unsigned group, unsigned needed) const {
  for (unsigned function = 1; function <= kFunctions; ++function)
    index_.prefetch(across(primary, group, function));
  unsigned best = 0;
  unsigned most = needed - 1;
  for (unsigned function = 1; function <= kFunctions; ++function) {
    const unsigned free = bucket(across(primary, group, function)).free_slots();
    if (free > most) {
      best = function;
      most = free;
    }
  }
  return best;
}

/// Moves a remapped group out of a full bucket to another of its buckets, with room for the group
/// and `more` further entries. False if there is no such bucket.
template <class K>
bool Horton<K>::regroup(const Remap& remap, unsigned more) {
  const std::uint32_t group = members(remap);
  const auto needed = static_cast<unsigned>(std::popcount(group)) + more;
  const unsigned function = emptiest(remap.primary, remap.group, needed);
  if (function == 0) return false;
  const std::uint32_t from = secondary(remap);
  const std::uint32_t to = across(remap.primary, remap.group, function);
  for (std::uint32_t slots = group; slots != 0; slots &= slots - 1)
    move({from, lowest_slot(slots)}, {index_.free_in(to), function});
  return true;
}

template <class K>
void Horton<K>::move(Place from, const Target& to) {
  const Tag tag = index_.tag(from);
  const std::uint32_t primary = is_primary(from) ? from.bucket : remap_of(from).primary;
  index_.id(to.place) = index_.id(from);
  vacate(from);
  occupy(to, primary, tag);
}

template <class K>
ConnId Horton<K>::erase(const K& key, Hash hash) {
  const Place place = probe(key, hash);
  if (!place) return ConnId::none;
  const ConnId id = index_.id(place);
  vacate(place);
  index_.ids.give_back(id);
  bring_one_home(place.bucket);
  return id;
}

/// Moves one remapped entry of a primary bucket back into that bucket, if there is such an entry.
/// The bucket must have room.
template <class K>
void Horton<K>::bring_one_home(std::uint32_t primary) {
  const std::uint64_t remap_entries = own(primary).remap;
  if (remap_entries == 0) return;
  const auto group = static_cast<unsigned>(std::countr_zero(remap_entries)) / 3;
  const Remap remap = remap_at(primary, group);
  const unsigned slot = lowest_slot(members(remap));
  move({secondary(remap), slot}, {index_.free_in(primary), 0});
}

template <class K>
auto Horton<K>::statistics() const -> Statistics {
  std::size_t primary = 0;
  std::size_t remapped = 0;
  for (std::uint32_t at = 0; at < index_.buckets(); ++at) {
    index_.for_each_live(at, [&](Place place) { primary += is_primary(place); });
    for (unsigned group = 0; group < kGroups; ++group) remapped += own(at).remapped(group) != 0;
  }
  const auto live = static_cast<double>(std::max<std::size_t>(size(), 1));
  const double share = static_cast<double>(primary) / live;
  const double groups = static_cast<double>(index_.buckets()) * kGroups;
  return {share, 2 - share, 1 + static_cast<double>(remapped) / groups};
}

template <class K>
Result<void> Horton<K>::check_invariants() const {
  const char* wrong = nullptr;
  for (std::uint32_t at = 0; at < index_.buckets(); ++at) {
    index_.for_each_live(at, [&](Place place) {
      const K& key = index_.records.header(index_.id(place)).key;
      const Hash hash = index_.hasher(key);
      const Remap remap = remap_of(place);
      const bool primary = is_primary(place);
      if (index_.tag(place) != Index::tag_for(hash) ||
          index_.first_of(hash) != (primary ? at : remap.primary))
        wrong = "1: an entry's bucket or tag is wrong";
      if (!primary && own(remap.primary).remapped(remap.group) != remap.function)
        wrong = "2: a group is remapped in two ways";
      if (const Place found = probe(key, hash); !found || index_.id(found) != index_.id(place))
        wrong = "3: a key is live in two slots, or not found";
    });
    for (unsigned group = 0; group < kGroups; ++group) {
      const Remap remap = remap_at(at, group);
      if (remap.function != 0 && members(remap) == 0)
        wrong = "2: a remap entry is set, but no entry is remapped";
    }
  }
  if (!index_.ids_add_up()) wrong = "4: the ids in slots are not the pool's live ids";
  if (wrong == nullptr) return {};
  return std::unexpected(Error{std::string("horton: ") + wrong});
}

}  // namespace MILLRACE_ISA

static_assert(ConnectionTable<Horton<KeyV4>, KeyV4> && ConnectionTable<Horton<KeyV6>, KeyV6>);

}  // namespace millrace
