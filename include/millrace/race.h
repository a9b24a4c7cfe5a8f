// `race`: millrace's own connection table.
//
// A bucket is one cache line: 28 tags of 16 bits and a counting overflow filter. A slot's place
// says which record is its own, so nothing ever moves and an id stays valid for the life of its
// entry; the full key stands in the record, beside the state that the packet needs anyway. A hit
// costs two lines and leaves the state in the cache, a miss one.
//
//      0      2                        54     56                64
//      +------+------+---       ---+------+-------------------+
//      | tag0 | tag1 |     ...     | tag27|     overflow      |
//      +------+------+---       ---+------+-------------------+
//      tag: 0 free, 1 draining, else live   overflow: 21 counters of 3 bits
//      the record of slot s in bucket b is number 28 b + s
//
// A key has three homes, tried in this order: its first bucket, its second bucket, and a bucket of
// a small overflow area. An insertion takes the first of them that is not full.
//
// Invariants (check_invariants quotes them):
//  1. A live slot's tag is its key's tag, and its bucket is one of its key's three homes.
//  2. Of a key's homes, each one before the bucket that holds it counts it: counter `filter(hash)`
//     of a bucket is the number of entries of that filter value that went past it. So a lookup that
//     meets a counter of 0 need not look further. Counters are exact and never saturate: an
//     insertion that would need an eighth count in one counter is refused that home.
//  3. A key is live in one slot at most.
//  4. The draining slots are those on the draining list.
//  5. size() is the number of live slots.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/detail/draining.h"
#include "millrace/detail/prefetch.h"
#include "millrace/detail/tags.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// A connection table, as table.h has it: the thread rule, the stages of the pipeline and the life
/// of ids are said there. Source: its own (docs/race.md); the filter's counters after Fan, Cao,
/// Almeida and Broder, "Summary Cache", 2000.
template <class K>
class Race {
 public:
  static constexpr std::string_view kName = "race";
  static constexpr std::string_view kSummary =
      "one line of 28 tags and a counting filter a bucket, key and state in the record; the "
      "default";
  /// Up to this share of its slots it accepts practically everything, under churn too.
  static constexpr double kMaxLoad = 0.85;
  static constexpr bool kKeyInRecord = true;

  /// Errors: a capacity of 0 or above 3,646,000,000, headroom included, or more than 256 bytes a
  /// record (usage); no memory (failed).
  static Result<Race> create(const TableConfig& config);

  void prefetch(std::span<const Hash> hashes) const {
    for (const Hash hash : hashes) detail::prefetch(&bucket(first_of(hash)));
  }

  Stragglers prefetch_records(std::span<const K>, std::span<const Hash> hashes) const {
    return prefetch_records<false>(hashes);
  }
  Stragglers prefetch_to_open(std::span<const K>, std::span<const Hash> hashes) const {
    return prefetch_records<true>(hashes);
  }
  void prefetch_stragglers(std::span<const K>, std::span<const Hash> hashes,
                           Stragglers stragglers) const {
    stragglers.for_each(hashes.size(), [&](std::size_t i) {
      const std::uint32_t second = home_of(hashes[i], 1);
      if (prefetch_match(second, hashes[i])) return;
      const std::uint32_t third = home_of(hashes[i], 2);
      if (bucket(second).passed(filter_of(hashes[i])) != 0 && prefetch_match(third, hashes[i]))
        return;
      if (!stragglers.may_open()) return;
      for (const std::uint32_t home : {first_of(hashes[i]), second, third})
        if (prefetch_free(home)) break;
    });
  }

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers stragglers = {}) const {
    stragglers.for_each_other(keys.size(),
                              [&](std::size_t i) { ids[i] = find_from<0>(keys[i], hashes[i]); });
    stragglers.for_each(keys.size(),
                        [&](std::size_t i) { ids[i] = find_from<1>(keys[i], hashes[i]); });
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash);

  void settle(std::size_t oldest = kAllDraining) {
    draining_.settle(oldest, [this](ConnId id) { tag_of(id) = kFree; });
  }

  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const;

  const Hasher& hasher() const { return hasher_; }
  const Records<K>& records() const { return records_; }
  std::size_t size() const { return size_; }
  std::size_t draining() const { return draining_.size(); }
  std::size_t capacity() const { return capacity_; }
  std::size_t slots() const { return records_.count(); }
  std::size_t memory_bytes() const { return index_.bytes() + records_.memory_bytes(); }
  Pages pages() const { return std::max(index_.pages(), records_.pages()); }
  Result<void> check_invariants() const;

  /// How many buckets a look-up of the key reads, 1 to 3: what an attacker would raise.
  unsigned buckets_read(const K& key) const { return place_of(key, hasher_(key)).home + 1; }

 private:
  using Tag = std::uint16_t;
  static constexpr Tag kFree = 0;
  static constexpr Tag kDraining = 1;
  static constexpr unsigned kSlots = 28;
  static constexpr std::uint32_t kSlotMask = (1U << kSlots) - 1;
  static constexpr unsigned kFilters = 21;
  static constexpr unsigned kFilterBits = 3;
  static constexpr std::uint64_t kPassedMax = (1U << kFilterBits) - 1;
  static constexpr unsigned kHomes = 3;
  static constexpr std::uint32_t kBucketsPerAreaBucket = 24;

  struct alignas(64) Bucket {
    std::array<Tag, kSlots + 4> line{};  // the last four are the overflow filter

    std::uint32_t match(Tag tag) const { return detail::match_tags(line, tag) & kSlotMask; }
    std::uint32_t free() const { return match(kFree); }
    std::uint64_t overflow() const {
      std::uint64_t counters;
      std::memcpy(&counters, &line[kSlots], sizeof(counters));
      return counters;
    }
    std::uint64_t passed(unsigned filter) const {
      return overflow() >> kFilterBits * filter & kPassedMax;
    }
    bool can_pass(unsigned filter) const { return passed(filter) < kPassedMax; }
    void count_passed(unsigned filter, std::int64_t by) {
      const std::uint64_t counters =
          overflow() + (static_cast<std::uint64_t>(by) << kFilterBits * filter);
      std::memcpy(&line[kSlots], &counters, sizeof(counters));
    }
  };
  static_assert(sizeof(Bucket) == 64);

  /// Of no entry: the home that a look-up reads last.
  struct Place {
    ConnId id = ConnId::none;
    unsigned home = 0;
  };

  Race(const TableConfig& config, Memory index, Records<K> records, std::uint32_t buckets,
       std::uint32_t area)
      : hasher_(config.secret),
        index_(std::move(index)),
        records_(std::move(records)),
        buckets_(buckets),
        area_(area),
        capacity_(config.capacity) {}

  static unsigned lowest(std::uint32_t slots) {
    return static_cast<unsigned>(std::countr_zero(slots));
  }
  Bucket& bucket(std::uint32_t at) const { return reinterpret_cast<Bucket*>(index_.data())[at]; }
  static ConnId id_of(std::uint32_t bucket, unsigned slot) {
    return ConnId{bucket * kSlots + slot};
  }
  Tag& tag_of(ConnId id) const { return bucket(index(id) / kSlots).line[index(id) % kSlots]; }

  // The hash is spent on five choices. Its upper and lower half pick the two buckets, its last bits
  // are the tag. Entries of one bucket share the bits that picked it; so the filter comes from a
  // product in which all bits meet, and the area's bucket from another.
  static std::uint32_t range(std::uint64_t bits, std::uint32_t size) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint32_t>(static_cast<Wide>(bits) * size >> 64);
  }
  std::uint32_t first_of(Hash hash) const { return range(hash, buckets_); }
  std::uint32_t home_of(Hash hash, unsigned home) const {
    const std::uint32_t first = first_of(hash);
    if (home == 0) return first;
    if (home == 2) return buckets_ + range(mixed(hash, 0xd6e8feb86659fd93), area_);
    const std::uint32_t second = range(std::rotr(hash, 32), buckets_);
    if (second != first) return second;
    return second + 1 == buckets_ ? 0 : second + 1;
  }
  static std::uint64_t mixed(Hash hash, std::uint64_t factor = 0x9e3779b97f4a7c15) {
    return hash * factor;
  }
  static Tag tag_for(Hash hash) {
    return static_cast<Tag>(hash | 2);  // neither free nor draining
  }
  static unsigned filter_of(Hash hash) { return range(mixed(hash), kFilters); }

  /// The key's entry in the bucket `at`, or none.
  ConnId look(std::uint32_t at, Tag tag, const K& key) const {
    for (std::uint32_t match = bucket(at).match(tag); match != 0; match &= match - 1) {
      const ConnId id = id_of(at, lowest(match));
      if (records_.header(id).key == key) return id;
    }
    return ConnId::none;
  }

  /// The key's entry, or none; most probably in the home `kHome`, if anywhere.
  template <unsigned kHome>
  ConnId find_from(const K& key, Hash hash) const {
    const std::uint32_t at = home_of(hash, kHome);
    const std::uint32_t match = bucket(at).match(tag_for(hash));
    if (match != 0) [[likely]] {
      const ConnId id = id_of(at, lowest(match));
      if (records_.header(id).key == key) [[likely]]
        return id;
    } else if (bucket(at).passed(filter_of(hash)) == 0 &&
               (kHome == 0 || bucket(first_of(hash)).match(tag_for(hash)) == 0)) {
      return ConnId::none;
    }
    return place_of(key, hash).id;
  }
  /// Whether a slot has that tag; begins to fetch the record of the first one.
  bool prefetch_match(std::uint32_t at, Hash hash) const {
    const std::uint32_t match = bucket(at).match(tag_for(hash));
    if (match != 0) [[likely]]
      records_.prefetch(id_of(at, lowest(match)));
    return match != 0;
  }

  /// Whether a slot is free; begins to fetch its record.
  bool prefetch_free(std::uint32_t at) const {
    const std::uint32_t free = bucket(at).free();
    if (free != 0) records_.prefetch(id_of(at, lowest(free)));
    return free != 0;
  }

  /// The whole search. Out of line: `find_from` needs it rarely, and the registers for itself.
  [[gnu::noinline]] Place place_of(const K& key, Hash hash) const {
    for (unsigned home = 0;; ++home) {
      const std::uint32_t at = home_of(hash, home);
      const ConnId id = look(at, tag_for(hash), key);
      const bool last = home + 1 == kHomes || bucket(at).passed(filter_of(hash)) == 0;
      if (id != ConnId::none || last) return {id, home};
    }
  }

  /// Counts an entry of that hash, which stands in `home`, in or out of the homes before it.
  void count_past(Hash hash, unsigned home, int by) {
    for (unsigned before = 0; before < home; ++before) {
      bucket(home_of(hash, before)).count_passed(filter_of(hash), by);
    }
  }

  /// Homes at and beyond this one are closed to the hash: a counter before them is at its end.
  unsigned homes_open(Hash hash) const {
    for (unsigned home = 0; home + 1 < kHomes; ++home) {
      if (!bucket(home_of(hash, home)).can_pass(filter_of(hash))) return home + 1;
    }
    return kHomes;
  }

  template <bool kMayOpen>
  Stragglers prefetch_records(std::span<const Hash> hashes) const;
  template <WorthFunction W>
  Insertion insert_anywhere(const K& key, Hash hash, const W& worth);
  Place free_place(Hash hash) const;
  template <WorthFunction W>
  Place least_worthy(Hash hash, const W& worth) const;
  void occupy(const Place& place, const K& key, Hash hash) {
    tag_of(place.id) = tag_for(hash);
    records_.header(place.id).key = key;
    count_past(hash, place.home, +1);
    ++size_;
  }
  void vacate(const Place& place, Hash hash, Tag becomes) {
    tag_of(place.id) = becomes;
    count_past(hash, place.home, -1);
    --size_;
  }
  unsigned home_in(ConnId id, Hash hash) const {
    unsigned home = 0;
    while (home < kHomes && home_of(hash, home) != index(id) / kSlots) ++home;
    return home;
  }
  template <class Each>
  void for_each_live(std::uint32_t at, Each&& each) const {
    const Bucket& b = bucket(at);
    for (std::uint32_t live = ~(b.free() | b.match(kDraining)) & kSlotMask; live != 0;
         live &= live - 1) {
      each(id_of(at, lowest(live)));
    }
  }

  Hasher hasher_;
  Memory index_;
  Records<K> records_;
  std::uint32_t buckets_ = 0;  // first and second homes
  std::uint32_t area_ = 0;     // third homes, behind them
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  detail::Draining draining_;
};

template <class K>
Result<Race<K>> Race<K>::create(const TableConfig& config) {
  if (auto ok = entries_wanted(config, 3'646'000'000); !ok) return std::unexpected(ok.error());
  // A draining id keeps its slot.
  const double wanted = static_cast<double>(config.capacity + kDrainingRoom) / kMaxLoad;
  const auto all = static_cast<std::uint32_t>(wanted / kSlots) + 1;
  const std::uint32_t area = std::max(1U, all / kBucketsPerAreaBucket);
  const std::uint32_t buckets = std::max(2U, all - area);  // two homes that differ
  auto index = Memory::map(std::size_t{buckets + area} * sizeof(Bucket), config.pages);
  if (!index) return std::unexpected(index.error());
  auto records =
      Records<K>::create(std::size_t{buckets + area} * kSlots, config.state_bytes, config.pages);
  if (!records) return std::unexpected(records.error());
  return Race(config, std::move(*index), std::move(*records), buckets, area);
}

template <class K>
template <bool kMayOpen>
Stragglers Race<K>::prefetch_records(std::span<const Hash> hashes) const {
  Stragglers stragglers(kMayOpen);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const Hash hash = hashes[i];
    const std::uint32_t first = first_of(hash);
    if (prefetch_match(first, hash)) continue;
    if (bucket(first).passed(filter_of(hash)) == 0 && !(kMayOpen && !prefetch_free(first)))
      continue;
    stragglers.add(i);
    detail::prefetch(&bucket(home_of(hash, 1)));
  }
  return stragglers;
}

template <class K>
template <WorthFunction W>
Insertion Race<K>::insert(const K& key, Hash hash, const W& worth) {
  const std::uint32_t first = first_of(hash);
  const Bucket& b = bucket(first);
  if (b.match(tag_for(hash)) == 0 && b.passed(filter_of(hash)) == 0) [[likely]] {
    if (const std::uint32_t free = b.free(); free != 0) [[likely]] {
      const ConnId id = id_of(first, lowest(free));
      occupy({id, 0}, key, hash);
      return {id, Insertion::Outcome::inserted, ConnId::none};
    }
  }
  return insert_anywhere(key, hash, worth);
}

template <class K>
template <WorthFunction W>
[[gnu::noinline]] Insertion Race<K>::insert_anywhere(const K& key, Hash hash, const W& worth) {
  if (const Place found = place_of(key, hash); found.id != ConnId::none)
    return Insertion::met(found.id, worth(found.id) != 0);
  Place place = free_place(hash);
  ConnId displaced = ConnId::none;
  if (place.id == ConnId::none) {
    if constexpr (std::is_same_v<W, KeepAll>) return {};
    place = least_worthy(hash, worth);
    if (place.id == ConnId::none) return {};
    displaced = place.id;
    const Hash old = hasher_(records_.header(displaced).key);
    vacate({displaced, home_in(displaced, old)}, old, kFree);
  }
  occupy(place, key, hash);
  return {place.id, Insertion::Outcome::inserted, displaced};
}

template <class K>
auto Race<K>::free_place(Hash hash) const -> Place {
  for (unsigned home = 0; home < kHomes; ++home) {
    const std::uint32_t at = home_of(hash, home);
    if (const std::uint32_t free = bucket(at).free(); free != 0) {
      return {id_of(at, lowest(free)), home};
    }
    if (!bucket(at).can_pass(filter_of(hash))) break;
  }
  return {};
}

template <class K>
template <WorthFunction W>
auto Race<K>::least_worthy(Hash hash, const W& worth) const -> Place {
  // Not in the overflow area: the newcomer's look-ups would all cost three buckets.
  const unsigned open = std::min(homes_open(hash), 2U);
  for (unsigned home = 0; home < open; ++home) {
    for_each_live(home_of(hash, home), [&](ConnId id) { records_.prefetch(id); });
  }
  Victim victim(worth, Place{});
  for (unsigned home = 0; home < open; ++home) {
    for_each_live(home_of(hash, home), [&](ConnId id) { victim.consider(id, {id, home}); });
  }
  return victim.place();
}

template <class K>
ConnId Race<K>::erase(const K& key, Hash hash) {
  const Place place = place_of(key, hash);
  if (place.id == ConnId::none) return ConnId::none;
  vacate(place, hash, kDraining);
  draining_.add(place.id);
  return place.id;
}

template <class K>
template <class Visit>
Cursor Race<K>::walk(Cursor cursor, std::size_t about, Visit&& visit) const {
  // Sparse buckets count too, so that a step is bounded whatever the load is.
  auto at = static_cast<std::uint32_t>(cursor);
  for (std::size_t visited = 0; at < buckets_ + area_ && visited < about; ++at, ++visited) {
    for_each_live(at, [&](ConnId id) {
      visit(id);
      ++visited;
    });
  }
  return at == buckets_ + area_ ? Cursor::end : Cursor{at};
}

template <class K>
Result<void> Race<K>::check_invariants() const {
  const auto broken = [](std::string what) {
    return std::unexpected(Error{"race: " + std::move(what)});
  };
  std::vector<std::array<unsigned, kFilters>> passed(std::size_t{buckets_} + area_);
  std::size_t live = 0;
  std::size_t draining = 0;
  std::string wrong;
  for (std::uint32_t at = 0; at < buckets_ + area_; ++at) {
    draining += static_cast<std::size_t>(std::popcount(bucket(at).match(kDraining)));
    for_each_live(at, [&](ConnId id) {
      const K& key = records_.header(id).key;
      const Hash hash = hasher_(key);
      const unsigned home = home_in(id, hash);
      ++live;
      if (home == kHomes || tag_of(id) != tag_for(hash)) wrong = "1: an entry is not at home";
      if (home == kHomes) return;
      for (unsigned before = 0; before < home; ++before)
        ++passed[home_of(hash, before)][filter_of(hash)];
      if (place_of(key, hash).id != id) wrong = "3: a key is live in two slots, or not found";
    });
  }
  for (std::uint32_t at = 0; at < buckets_ + area_; ++at) {
    for (unsigned filter = 0; filter < kFilters; ++filter) {
      if (bucket(at).passed(filter) != passed[at][filter]) wrong = "2: an overflow counter is off";
    }
  }
  if (!wrong.empty()) return broken(wrong);
  if (draining != draining_.size()) return broken("4: the draining list is off");
  for (const ConnId id : draining_.ids()) {
    if (tag_of(id) != kDraining) return broken("4: a slot on the draining list is not draining");
  }
  if (live != size_) return broken("5: size() is off");
  return {};
}

}  // namespace MILLRACE_ISA

static_assert(ConnectionTable<Race<KeyV4>, KeyV4> && ConnectionTable<Race<KeyV6>, KeyV6>);

}  // namespace millrace
