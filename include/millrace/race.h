// `race`: millrace's own connection table.
//
// A bucket is one cache line: 28 tags of 16 bits and a counting overflow filter. The position of a
// slot determines its record, so entries never move and an id stays valid for the life of its
// entry. The full key stands in the record, beside the state that the packet needs anyway. Most
// hits read two cache lines and leave the state in the cache; most misses read one line.
//
//      0      2                        54     56                64
//      +------+------+---       ---+------+-------------------+
//      | tag0 | tag1 |     ...     | tag27|     overflow      |
//      +------+------+---       ---+------+-------------------+
//      tag: 0 free, 1 draining, else live   overflow: 21 counters of 3 bits
//      the record of slot s in bucket b is number 28 b + s
//
// A key has three homes, tried in this order: its first bucket, its second bucket, and a bucket of
// a small overflow area. An insertion takes the first home that is not full.
//
// Invariants (check_invariants quotes them):
//  1. A live slot's tag is its key's tag, and its bucket is one of its key's three homes.
//  2. Every home before the bucket that holds an entry counts the entry: counter `filter_of(hash)`
//     of a bucket is the number of entries with that filter value that went past the bucket. A
//     lookup that finds a counter of 0 therefore stops. Counters are exact and never saturate: an
//     insertion that would raise a counter to 8 may not go past that home.
//  3. A key is live in one slot at most.
//  4. size() is the number of live slots.
//
// `SharedRace` is for several threads at once. Readers never wait. A writer holds its key's first
// bucket, by the bit that the overflow filter leaves free, so that a key is inserted once. The
// writer also holds each later bucket that it inserts into or whose counters it changes; if another
// thread holds one of these buckets, the writer releases all of its buckets and begins again. A
// slot gets its tag after the record has the key. Counters go up before the tag is stored, and down
// after the tag is cleared. A lookup during an insertion may miss the new entry, as if the lookup
// had been first; a second insertion of the same key finds the entry.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/detail/check.h"
#include "millrace/detail/prefetch.h"
#include "millrace/detail/race_bucket.h"
#include "millrace/detail/words.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// A connection table under the contract of table.h. Source: millrace's own (docs/race.md); the
/// filter's counters are after Fan, Cao, Almeida and Broder, "Summary Cache", 2000. `Words` says
/// how many threads may use the table at once (detail/words.h).
template <class K, class Words>
class BasicRace {
 public:
  static constexpr std::string_view kName = "race";
  static constexpr std::string_view kSummary =
      "each bucket is a cache line of 28 tags and a counting filter, keys are in the records; the "
      "default";
  /// The load up to which practically no insertion is refused, under churn too (docs/race.md).
  static constexpr double kMaxLoad = 0.85;
  static constexpr bool kKeyInRecord = true;

  /// Makes an empty table. Errors: a capacity of 0 or, with its headroom, above 3,646,000,000; a
  /// headroom outside 0 to 1; a record of more than 256 bytes (all usage); no memory (failed).
  static Result<BasicRace> create(const TableConfig& config);

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
    MILLRACE_CHECK(hashes.size() == keys.size() && ids.size() >= keys.size(), "Race::find",
                   "there must be as many hashes as keys, and as many ids or more");
    stragglers.for_each_other(keys.size(),
                              [&](std::size_t i) { ids[i] = find_from<0>(keys[i], hashes[i]); });
    stragglers.for_each(keys.size(),
                        [&](std::size_t i) { ids[i] = find_from<1>(keys[i], hashes[i]); });
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash);

  void release(ConnId id) {
    MILLRACE_CHECK(index(id) < slots() && Words::load(tag_of(id)) == Bucket::kDraining,
                   "Race::release", "the id must be draining: erased, and not released yet");
    Words::store(tag_of(id), Bucket::kFree);
  }

  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const;

  const Hasher& hasher() const { return hasher_; }
  const Records<K>& records() const { return records_; }
  /// Returns the number of live entries. `SharedRace` counts them: a counter would slow threads.
  std::size_t size() const {
    if constexpr (Words::kShared) return count_live();
    return size_;
  }
  std::size_t capacity() const { return capacity_; }
  std::size_t slots() const { return records_.count(); }
  std::size_t memory_bytes() const { return index_.bytes() + records_.memory_bytes(); }
  Pages pages() const { return std::max(index_.pages(), records_.pages()); }
  Result<void> check_invariants() const;

  /// Returns how many buckets a lookup of the key reads, 1 to 3. Attackers try to raise the number.
  unsigned buckets_read(const K& key) const { return place_of(key, hasher_(key)).home + 1; }

 private:
  using Bucket = detail::RaceBucket<Words>;
  using Tag = typename Bucket::Tag;
  static constexpr unsigned kSlots = Bucket::kSlots;
  static constexpr unsigned kFilters = Bucket::kFilters;
  static constexpr unsigned kHomes = 3;
  static constexpr std::uint32_t kBucketsPerAreaBucket = 24;

  /// An entry and the number of its home, 0 to 2. If `id` is none, `home` is the last home read.
  struct Place {
    ConnId id = ConnId::none;
    unsigned home = 0;
  };

  BasicRace(const TableConfig& config, Memory index, Records<K> records, std::uint32_t buckets,
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
  Tag& tag_of(ConnId id) const { return bucket(index(id) / kSlots).tag[index(id) % kSlots]; }

  // Five values come from one hash. Its upper and lower half pick the two buckets, its last bits
  // are the tag. Entries of one bucket share the bits that picked the bucket, so the filter value
  // and the bucket of the overflow area come from products that mix all bits.
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

  bool has_key(ConnId id, const K& key) const { return Words::equal(records_.header(id).key, key); }

  /// Returns the key's entry in bucket `at`, or none.
  ConnId look(std::uint32_t at, Tag tag, const K& key) const {
    for (std::uint32_t match = bucket(at).match(tag); match != 0; match &= match - 1) {
      const ConnId id = id_of(at, lowest(match));
      if (has_key(id, key)) return id;
    }
    return ConnId::none;
  }

  /// Returns the key's entry, or none. Reads home `kHome` first, the most probable one.
  template <unsigned kHome>
  ConnId find_from(const K& key, Hash hash) const {
    const std::uint32_t at = home_of(hash, kHome);
    const std::uint32_t match = bucket(at).match(tag_for(hash));
    if (match != 0) [[likely]] {
      const ConnId id = id_of(at, lowest(match));
      if (has_key(id, key)) [[likely]]
        return id;
    } else if (bucket(at).passed(filter_of(hash)) == 0 &&
               (kHome == 0 || bucket(first_of(hash)).match(tag_for(hash)) == 0)) {
      return ConnId::none;
    }
    return place_of(key, hash).id;
  }
  /// Prefetches the record of the first slot that has the hash's tag. False if no slot has it.
  bool prefetch_match(std::uint32_t at, Hash hash) const {
    const std::uint32_t match = bucket(at).match(tag_for(hash));
    if (match != 0) [[likely]]
      records_.prefetch(id_of(at, lowest(match)));
    return match != 0;
  }

  /// Prefetches the record of the first free slot. False if no slot is free.
  bool prefetch_free(std::uint32_t at) const {
    const std::uint32_t free = bucket(at).free();
    if (free != 0) records_.prefetch(id_of(at, lowest(free)));
    return free != 0;
  }

  /// Searches the homes in order. Out of line: `find_from` seldom calls it, and needs registers.
  [[gnu::noinline]] Place place_of(const K& key, Hash hash) const {
    for (unsigned home = 0;; ++home) {
      const std::uint32_t at = home_of(hash, home);
      const ConnId id = look(at, tag_for(hash), key);
      const bool last = home + 1 == kHomes || bucket(at).passed(filter_of(hash)) == 0;
      if (id != ConnId::none || last) return {id, home};
    }
  }

  /// Adds an entry to the counters of the homes before `home`; `count_out` takes it out of them.
  void count_in(Hash hash, unsigned home) {
    while (home-- > 0) bucket(home_of(hash, home)).count_in(filter_of(hash));
  }
  void count_out(Hash hash, unsigned home) {
    while (home-- > 0) bucket(home_of(hash, home)).count_out(filter_of(hash));
  }

  /// Returns how many homes a new key of that hash may use: it may not go past a full counter.
  unsigned homes_open(Hash hash) const {
    for (unsigned home = 0; home + 1 < kHomes; ++home) {
      if (!bucket(home_of(hash, home)).can_pass(filter_of(hash))) return home + 1;
    }
    return kHomes;
  }

  template <bool kMayOpen>
  Stragglers prefetch_records(std::span<const Hash> hashes) const;
  template <WorthFunction W>
  std::optional<Insertion> try_to_insert(const K& key, Hash hash, const W& worth);
  template <WorthFunction W>
  std::optional<Insertion> insert_anywhere(const K& key, Hash hash, const W& worth);
  ConnId free_in(std::uint32_t at) const {
    const unsigned slot = bucket(at).free_slot();
    return slot == kSlots ? ConnId::none : id_of(at, slot);
  }
  std::optional<ConnId> insert_where_free(const K& key, Hash hash);
  template <WorthFunction W>
  ConnId insert_for_least_worthy(const K& key, Hash hash, const W& worth);
  /// Makes a free slot live. The homes before the slot's home must count the entry already.
  void occupy(ConnId id, const K& key, Hash hash) {
    Words::write(records_.header(id).key, key);
    Words::store(tag_of(id), tag_for(hash));
    if constexpr (!Words::kShared) ++size_;
  }
  /// Makes a live slot draining.
  void vacate(const Place& place, Hash hash) {
    Words::store(tag_of(place.id), Bucket::kDraining);
    count_out(hash, place.home);
    if constexpr (!Words::kShared) --size_;
  }
  unsigned home_in(ConnId id, Hash hash) const {
    unsigned home = 0;
    while (home < kHomes && home_of(hash, home) != index(id) / kSlots) ++home;
    return home;
  }
  template <class Each>
  void for_each_live(std::uint32_t at, Each&& each) const {
    for (std::uint32_t slots = bucket(at).live(); slots != 0; slots &= slots - 1)
      each(id_of(at, lowest(slots)));
  }
  std::size_t count_live() const {
    std::size_t count = 0;
    for (std::uint32_t at = 0; at < buckets_ + area_; ++at)
      count += static_cast<std::size_t>(std::popcount(bucket(at).live()));
    return count;
  }

  Hasher hasher_;
  Memory index_;
  Records<K> records_;
  std::uint32_t buckets_ = 0;  // number of buckets that are first and second homes
  std::uint32_t area_ = 0;     // number of buckets of the overflow area, behind the others
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

template <class K>
using Race = BasicRace<K, detail::OneThread>;
/// The table for several threads at once. The caller may release an erased id only when no thread
/// that found its entry before the erase still uses the entry. `insert` evicts nothing.
template <class K>
using SharedRace = BasicRace<K, detail::ManyThreads>;

template <class K, class Words>
auto BasicRace<K, Words>::create(const TableConfig& config) -> Result<BasicRace> {
  if (auto ok = entries_wanted(config, 3'646'000'000); !ok) return std::unexpected(ok.error());
  // Draining ids keep their slots.
  const double wanted = static_cast<double>(config.capacity + kDrainingRoom) / kMaxLoad;
  const auto all = static_cast<std::uint32_t>(wanted / kSlots) + 1;
  const std::uint32_t area = std::max(1U, all / kBucketsPerAreaBucket);
  const std::uint32_t buckets = std::max(2U, all - area);  // first and second home must differ
  // The largest mapping first, so that a lack of memory mostly shows before pages are touched.
  auto records =
      Records<K>::create(std::size_t{buckets + area} * kSlots, config.state_bytes, config.pages);
  if (!records) return std::unexpected(records.error());
  auto index = Memory::map(std::size_t{buckets + area} * sizeof(Bucket), config.pages);
  if (!index) return std::unexpected(index.error());
  return BasicRace(config, std::move(*index), std::move(*records), buckets, area);
}

template <class K, class Words>
template <bool kMayOpen>
Stragglers BasicRace<K, Words>::prefetch_records(std::span<const Hash> hashes) const {
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

template <class K, class Words>
template <WorthFunction W>
Insertion BasicRace<K, Words>::insert(const K& key, Hash hash, const W& worth) {
  if constexpr (!Words::kShared) return *try_to_insert(key, hash, worth);
  for (detail::Backoff others;; others.wait())
    if (const auto in = try_to_insert(key, hash, worth)) return *in;
}

template <class K, class Words>
template <WorthFunction W>
std::optional<Insertion> BasicRace<K, Words>::try_to_insert(const K& key, Hash hash,
                                                            const W& worth) {
  const std::uint32_t first = first_of(hash);
  const Bucket& b = bucket(first);
  const typename Bucket::Hold hold(bucket(first));
  if (b.match(tag_for(hash)) == 0 && b.passed(filter_of(hash)) == 0) [[likely]] {
    if (const ConnId id = free_in(first); id != ConnId::none) [[likely]] {
      occupy(id, key, hash);
      return Insertion{id, Insertion::Outcome::inserted, ConnId::none};
    }
  }
  return insert_anywhere(key, hash, worth);
}

/// Finds the key's entry, else inserts, else evicts. Returns nothing if a later home is held.
template <class K, class Words>
template <WorthFunction W>
[[gnu::noinline]] std::optional<Insertion> BasicRace<K, Words>::insert_anywhere(const K& key,
                                                                                Hash hash,
                                                                                const W& worth) {
  static_assert(!Words::kShared || std::is_same_v<W, KeepAll>, "under sharing ids must drain");
  using enum Insertion::Outcome;
  if (const Place found = place_of(key, hash); found.id != ConnId::none)
    return Insertion::met(found.id, worth(found.id) != 0);
  const auto id = insert_where_free(key, hash);
  if (!id) return std::nullopt;
  if (*id != ConnId::none) return Insertion{*id, inserted, ConnId::none};
  if constexpr (std::is_same_v<W, KeepAll>) return Insertion{};
  const ConnId least = insert_for_least_worthy(key, hash, worth);
  return least == ConnId::none ? Insertion{} : Insertion{least, inserted, least};
}

/// Inserts into the first home with a free slot. Returns the entry's id, none if there is no slot,
/// or nothing if another thread holds a later home. The caller must hold the first home.
template <class K, class Words>
std::optional<ConnId> BasicRace<K, Words>::insert_where_free(const K& key, Hash hash) {
  std::array<typename Bucket::Hold, kHomes> holds;
  for (unsigned home = 0; home < kHomes; ++home) {
    const std::uint32_t at = home_of(hash, home);
    if (home > 0 && !holds[home].try_to_have(bucket(at))) return std::nullopt;
    if (const ConnId id = free_in(at); id != ConnId::none) {
      count_in(hash, home);
      occupy(id, key, hash);
      return id;
    }
    if (!bucket(at).can_pass(filter_of(hash))) break;
  }
  return ConnId::none;
}

/// Replaces the first two homes' least worthy entry, if worth less. Returns the id, or none.
template <class K, class Words>
template <WorthFunction W>
ConnId BasicRace<K, Words>::insert_for_least_worthy(const K& key, Hash hash, const W& worth) {
  // Leaves out the overflow area: there, every lookup of the newcomer would read three buckets.
  const unsigned open = std::min(homes_open(hash), 2U);
  for (unsigned home = 0; home < open; ++home) {
    for_each_live(home_of(hash, home), [&](ConnId id) { records_.prefetch(id); });
  }
  Victim victim(worth, Place{});
  for (unsigned home = 0; home < open; ++home) {
    for_each_live(home_of(hash, home), [&](ConnId id) { victim.consider(id, {id, home}); });
  }
  const Place place = victim.place();
  if (place.id == ConnId::none) return place.id;
  const Hash old = hasher_(records_.header(place.id).key);
  vacate({place.id, home_in(place.id, old)}, old);
  count_in(hash, place.home);
  occupy(place.id, key, hash);
  return place.id;
}

template <class K, class Words>
ConnId BasicRace<K, Words>::erase(const K& key, Hash hash) {
  for (detail::Backoff others;; others.wait()) {
    const typename Bucket::Hold first(bucket(first_of(hash)));
    typename Bucket::Hold second;
    const Place place = place_of(key, hash);
    if (place.home == 2 && !second.try_to_have(bucket(home_of(hash, 1)))) continue;
    if (place.id != ConnId::none) vacate(place, hash);
    return place.id;
  }
}

template <class K, class Words>
template <class Visit>
Cursor BasicRace<K, Words>::walk(Cursor cursor, std::size_t about, Visit&& visit) const {
  // Each bucket counts as a visit, too, so that a step is bounded at any load.
  auto at = static_cast<std::uint32_t>(cursor);
  for (std::size_t visited = 0; at < buckets_ + area_ && visited < about; ++at, ++visited) {
    for_each_live(at, [&](ConnId id) {
      visit(id);
      ++visited;
    });
  }
  return at == buckets_ + area_ ? Cursor::end : Cursor{at};
}

template <class K, class Words>
Result<void> BasicRace<K, Words>::check_invariants() const {
  const auto broken = [](std::string what) {
    return std::unexpected(Error{"race: " + std::move(what)});
  };
  std::vector<std::array<unsigned, kFilters>> passed(std::size_t{buckets_} + area_);
  std::size_t live = 0;
  std::string wrong;
  for (std::uint32_t at = 0; at < buckets_ + area_; ++at) {
    for_each_live(at, [&](ConnId id) {
      const K& key = records_.header(id).key;
      const Hash hash = hasher_(key);
      const unsigned home = home_in(id, hash);
      ++live;
      if (home == kHomes || tag_of(id) != tag_for(hash)) wrong = "1: a bucket or tag is wrong";
      if (home == kHomes) return;
      for (unsigned before = 0; before < home; ++before)
        ++passed[home_of(hash, before)][filter_of(hash)];
      if (place_of(key, hash).id != id) wrong = "3: a key is live in two slots, or not found";
    });
  }
  for (std::uint32_t at = 0; at < buckets_ + area_; ++at) {
    for (unsigned filter = 0; filter < kFilters; ++filter) {
      if (bucket(at).passed(filter) != passed[at][filter]) wrong = "2: a counter is wrong";
    }
  }
  if (!wrong.empty()) return broken(wrong);
  if (live != size()) return broken("4: size() is not the number of live slots");
  return {};
}

}  // namespace MILLRACE_ISA

static_assert(ConnectionTable<Race<KeyV4>, KeyV4> && ConnectionTable<Race<KeyV6>, KeyV6>);
static_assert(ConnectionTable<SharedRace<KeyV4>, KeyV4> &&
              ConnectionTable<SharedRace<KeyV6>, KeyV6>);

}  // namespace millrace
