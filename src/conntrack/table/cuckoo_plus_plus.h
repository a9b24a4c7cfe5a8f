// `cuckoo++`: a bucketed cuckoo table. Each bucket has a Bloom filter of the entries that the
// bucket has sent to their other bucket.
//
// After Le Scouarnec, "Cuckoo++ hash tables: high-performance hash tables for networking
// applications", ANCS'18, arXiv:1712.09624; written from the paper's description. docs/cuckoo++.md
// lists the differences.
//
// This header inserts and erases. The buckets and their filters are in cuckoo_plus_plus_index.h,
// the search for room in cuckoo_path.h, the walk in cuckoo_walk.h.
//
// Invariants (check_invariants quotes them):
//  1. A live entry stands in one of its key's two buckets, with its key's tag; the slot is *away*
//     if that bucket is not the entry's home.
//  2. `moved` of a bucket is the number of away entries that have it as their home. The number
//     never saturates: a bucket with 254 away entries or more sends no further entry away.
//  3. The filter of a bucket has the bits of every away entry that has the bucket as its home, and
//     is empty if there is none.
//  4. A key is live in one slot at most.
//  5. The ids of the live slots are the pool's live ids.
//  6. Only live slots are unseen, and the hierarchy marks exactly the buckets with an unseen slot.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/table/cuckoo_path.h"
#include "conntrack/table/cuckoo_plus_plus_index.h"
#include "conntrack/table/cuckoo_walk.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// The table, under its names `CuckooPlusPlus` and `CuckooPlusPlusTimers` below.
template <class K, bool kTimers>
class BasicCuckooPlusPlus {
  using Index = CuckooPlusPlusIndex<K, kTimers>;
  using Walk = CuckooWalk<Index>;
  using Clock = CuckooClock;
  using Place = CuckooPlace;
  using Tag = CuckooTag;

 public:
  static constexpr std::string_view kName = kTimers ? "cuckoo++-timers" : "cuckoo++";
  static constexpr std::string_view kSummary =
      kTimers
          ? "cuckoo++ with a coarse time of last use beside each tag"
          : "two 8-slot buckets a key, a Bloom filter saves most lookups the read of the second "
            "bucket";
  /// The load up to which practically no insertion is refused, under churn too.
  static constexpr double kMaxLoad = 0.95;
  static constexpr bool kKeyInRecord = true;

  static Result<BasicCuckooPlusPlus> create(const TableConfig& config) {
    auto index = Index::create(config, kMaxLoad);
    if (!index) return std::unexpected(index.error());
    auto walk = Walk::create(index->buckets(), config.pages);
    if (!walk) return std::unexpected(walk.error());
    return BasicCuckooPlusPlus(std::move(*index), std::move(*walk));
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
    stragglers.for_each_last(
        keys.size(), [&](std::size_t i) { ids[i] = id_or_none(index_.probe(keys[i], hashes[i])); });
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth) {
    return put(key, hash, worth, Clock{});
  }

  ConnId erase(const K& key, Hash hash) {
    const Place place = index_.probe(key, hash);
    return place ? drain(place) : ConnId::none;
  }

  void release(ConnId id) { index_.ids.release(id); }

  /// Visits entries. A walk writes the *unseen* bits, so under a sharing scheme it is a writer.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return walk_.step(index_, cursor, about, visit);
  }

  const Hasher& hasher() const { return index_.hasher; }
  const Records<K>& records() const { return index_.records; }
  std::size_t size() const { return index_.ids.live(); }
  std::size_t capacity() const { return index_.capacity; }
  std::size_t slots() const { return index_.slots(); }
  std::size_t memory_bytes() const { return index_.memory_bytes() + walk_.memory_bytes(); }
  Pages pages() const { return std::max(index_.pages(), walk_.pages()); }
  Result<void> check_invariants() const;

  struct Statistics {
    double home_share = 0;        ///< share of live entries that stand in their home
    double buckets_per_miss = 0;  ///< mean number of buckets read for an unknown key, 1 to 2
  };
  /// Returns statistics. Reads the whole index.
  Statistics statistics() const;

  /// @name Timers
  /// Each entry has a stamp in its bucket, so that expired entries are found and replaced without
  /// reading a record. An entry has expired if `now` is `timeout` (1 to 255 units) or more past its
  /// stamp. Stamps wrap: an entry that is not touched for 256 units looks young again, so call
  /// `expire` for each bucket at least every 256 - `timeout` units.
  /// @{

  /// Finds the entries of a burst, and stamps them with `now`.
  void touch(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
             CuckooStamp now)
    requires kTimers
  {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Place place = index_.probe(keys[i], hashes[i]);
      ids[i] = id_or_none(place);
      if (place) index_.set_stamp(place, now);
    }
  }
  /// Inserts with a stamp (`insert` without one stamps 0). If neither bucket has a free slot, or no
  /// id is free, replaces an expired entry of the two buckets, of any worth, before it searches for
  /// a path or evicts an entry, and reports the expired entry as displaced. An expired entry of the
  /// key itself counts as dead.
  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth, CuckooStamp now, CuckooStamp timeout)
    requires kTimers
  {
    return put(key, hash, worth, Clock{now, timeout});
  }
  /// Erases the expired entries of a bucket, 0 to buckets() - 1, and calls `each(id)` for each; the
  /// ids drain.
  template <class Each>
  void expire(std::uint32_t bucket, CuckooStamp now, CuckooStamp timeout, Each&& each)
    requires kTimers
  {
    index_.for_each_live(bucket, [&](Place place) {
      if (index_.has_expired(place, {now, timeout})) each(drain(place));
    });
  }
  std::uint32_t buckets() const
    requires kTimers
  {
    return index_.buckets();
  }
  /// @}

 private:
  BasicCuckooPlusPlus(Index index, Walk walk) : index_(std::move(index)), walk_(std::move(walk)) {}

  auto second() const {
    return [this](std::uint32_t home, Tag tag) { return index_.away_of(home, tag); };
  }
  ConnId id_or_none(Place place) const { return place ? index_.id(place) : ConnId::none; }

  template <WorthFunction W>
  Insertion put(const K& key, Hash hash, const W& worth, Clock clock);
  template <WorthFunction W>
  Place place_for(std::uint32_t home, Tag tag, const W& worth, Clock clock);
  Place free_place(std::uint32_t home, Tag tag);
  Place send_one_home(std::uint32_t from);
  Place expired_place(std::uint32_t home, Tag tag, Clock clock) const;
  Place room_by_moving(std::uint32_t home, Tag tag);
  template <WorthFunction W>
  Place least_worthy(std::uint32_t home, Tag tag, const W& worth) const;

  void move(Place from, Place to) {
    index_.copy(from, to);
    walk_.note_move(index_, from, to);
    vacate(from);
  }
  void vacate(Place place) {
    walk_.leave(index_, place);
    index_.vacate(place);
  }
  ConnId drain(Place place) {
    const ConnId id = index_.id(place);
    vacate(place);
    index_.ids.give_back(id);
    return id;
  }

  const char* broken_by(Place place) const;

  Index index_;
  mutable Walk walk_;
};

template <class K, bool kTimers>
template <WorthFunction W>
Insertion BasicCuckooPlusPlus<K, kTimers>::put(const K& key, Hash hash, const W& worth,
                                               Clock clock) {
  if (const Place found = index_.probe(key, hash)) {
    const ConnId id = index_.id(found);
    const bool alive = worth(id) != 0 && !index_.has_expired(found, clock);
    if (!alive) index_.set_stamp(found, clock.now);
    return Insertion::met(id, alive);
  }
  const std::uint32_t home = index_.first_of(hash);
  const Tag tag = Index::tag_for(hash);
  const Place place = place_for(home, tag, worth, clock);
  if (!place) return {};
  const ConnId displaced = index_.tag(place) != 0 ? index_.id(place) : ConnId::none;
  if (displaced != ConnId::none) vacate(place);
  const ConnId id = displaced != ConnId::none ? displaced : index_.ids.take();
  index_.occupy(place, home, tag, id, clock.now);
  index_.records.header(id).key = key;
  index_.records.prefetch(index_.ids.upcoming());
  return {id, Insertion::Outcome::inserted, displaced};
}

/// Returns the first of these that there is: a free slot; with timers, the slot of an expired
/// entry; a slot freed by moving other entries; the slot of an entry to evict; nowhere. Without a
/// free id, free slots do not count.
template <class K, bool kTimers>
template <WorthFunction W>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::place_for(std::uint32_t home, Tag tag, const W& worth,
                                                       Clock clock) {
  const bool ids_left = index_.ids.free() != 0;
  if (ids_left) {
    if (const Place place = free_place(home, tag)) return place;
  }
  if constexpr (kTimers) {
    if (const Place place = expired_place(home, tag, clock)) return place;
  }
  if (ids_left) {
    if (const Place place = room_by_moving(home, tag)) return place;
  }
  if constexpr (std::is_same_v<W, KeepAll>)
    return {};
  else
    return least_worthy(home, tag, worth);
}

/// Returns a free slot of the home, else of the other bucket if the home can send an entry away,
/// else nowhere. If the home is full, first an away entry in it moves back to that entry's own
/// home, if there is room. Without such moves, churn would spread entries evenly over both of their
/// buckets.
template <class K, bool kTimers>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::free_place(std::uint32_t home, Tag tag) {
  if (const Place place = index_.free_in(home)) return place;
  if (const Place place = send_one_home(home)) return place;
  return index_.can_send(home) ? index_.free_in(index_.other_of(home, tag)) : Place{};
}

template <class K, bool kTimers>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::send_one_home(std::uint32_t from) {
  const std::uint32_t strangers = index_.own(from).away;
  for (std::uint32_t left = strangers; left != 0; left &= left - 1)
    index_.prefetch(index_.home_of({from, lowest_slot(left)}));
  for (std::uint32_t left = strangers; left != 0; left &= left - 1) {
    const Place place{from, lowest_slot(left)};
    const Place room = index_.free_in(index_.home_of(place));
    if (!room) continue;
    move(place, room);
    return place;
  }
  return {};
}

template <class K, bool kTimers>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::expired_place(std::uint32_t home, Tag tag,
                                                           Clock clock) const {
  Place expired;
  const auto note = [&](Place place) {
    if (index_.has_expired(place, clock)) expired = place;
  };
  index_.for_each_live(home, note);
  if (!expired && index_.can_send(home)) index_.for_each_live(index_.other_of(home, tag), note);
  return expired;
}

template <class K, bool kTimers>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::room_by_moving(std::uint32_t home, Tag tag) {
  const auto mover = [this](Place from, Place to) { move(from, to); };
  return CuckooPath(index_, mover).room(home, tag);
}

template <class K, bool kTimers>
template <WorthFunction W>
CuckooPlace BasicCuckooPlusPlus<K, kTimers>::least_worthy(std::uint32_t home, Tag tag,
                                                          const W& worth) const {
  Victim victim(worth, Place{});
  const auto consider = [&](Place place) { victim.consider(index_.id(place), place); };
  index_.for_each_candidate(home, consider);
  if (index_.can_send(home)) index_.for_each_candidate(index_.other_of(home, tag), consider);
  return victim.place();
}

template <class K, bool kTimers>
auto BasicCuckooPlusPlus<K, kTimers>::statistics() const -> Statistics {
  std::size_t moved = 0;
  double second = 0;
  for (std::uint32_t at = 0; at < index_.buckets(); ++at) {
    moved += index_.own(at).moved;
    const double bits = std::popcount(index_.own(at).filter);
    second += bits * bits / (Index::Own::kFilterBits * Index::Own::kFilterBits);
  }
  const auto live = static_cast<double>(std::max<std::size_t>(size(), 1));
  return {1 - static_cast<double>(moved) / live, 1 + second / index_.buckets()};
}

template <class K, bool kTimers>
Result<void> BasicCuckooPlusPlus<K, kTimers>::check_invariants() const {
  const char* wrong = nullptr;
  std::vector<unsigned> moved(index_.buckets());
  for (std::uint32_t at = 0; at < index_.buckets(); ++at) {
    index_.for_each_live(at, [&](Place place) {
      moved[index_.home_of(place)] += index_.is_away(place);
      if (const char* broken = broken_by(place)) wrong = broken;
    });
    if ((index_.own(at).away & index_.bucket(at).free()) != 0) wrong = "1: a free slot is away";
    if (!walk_.is_sound(index_, at))
      wrong = "6: an unseen slot is free, or a bucket's mark is wrong";
  }
  for (std::uint32_t at = 0; at < index_.buckets(); ++at) {
    if (index_.own(at).moved != moved[at]) wrong = "2: a count of away entries is wrong";
    if (moved[at] == 0 && index_.own(at).filter != 0)
      wrong = "3: a filter without entries is not empty";
  }
  if (!index_.ids_add_up()) wrong = "5: the ids in slots are not the pool's live ids";
  if (wrong == nullptr) return {};
  return std::unexpected(Error{std::string(kName) + ": " + wrong});
}

/// Returns the invariant, of 1, 3 and 4, that an entry breaks, or null.
template <class K, bool kTimers>
const char* BasicCuckooPlusPlus<K, kTimers>::broken_by(Place place) const {
  const K& key = index_.records.header(index_.id(place)).key;
  const Hash hash = index_.hasher(key);
  const std::uint32_t home = index_.home_of(place);
  const Tag tag = index_.tag(place);
  if (home != index_.first_of(hash) || tag != Index::tag_for(hash))
    return "1: an entry's bucket or tag is wrong";
  if (home != place.bucket && !index_.may_be_away(home, tag)) return "3: a filter misses an entry";
  if (id_or_none(index_.probe(key, hash)) != index_.id(place))
    return "4: a key is live in two slots, or not found";
  return nullptr;
}

/// The table without timers, which the command line offers.
template <class K>
using CuckooPlusPlus = BasicCuckooPlusPlus<K, false>;
/// The table with built-in timers.
template <class K>
using CuckooPlusPlusTimers = BasicCuckooPlusPlus<K, true>;

}  // namespace MILLRACE_ISA

static_assert(ConnectionTable<CuckooPlusPlus<KeyV4>, KeyV4> &&
              ConnectionTable<CuckooPlusPlus<KeyV6>, KeyV6>);
static_assert(ConnectionTable<CuckooPlusPlusTimers<KeyV4>, KeyV4> &&
              ConnectionTable<CuckooPlusPlusTimers<KeyV6>, KeyV6>);

}  // namespace millrace
