// The common part of `cuckoo++` and `horton`: a bucket of one cache line, and the index of such
// buckets with its records and ids.
//
//      0      2           16    20            48                 64
//      +------+--     ----+-----+--     ------+------------------+
//      | tag0 | ... tag7  | id0 |  ...   id7  | the table's own  |
//      +------+--     ----+-----+--     ------+------------------+
//      tag: 0 free, else live
//
// Entries move between buckets, so ids come from a pool and do not depend on the slot. Keys stand
// in the records only; code that moves an entry knows its bucket and tag, and does not read its
// key.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/table/id_pool.h"
#include "millrace/detail/prefetch.h"
#include "millrace/table.h"

namespace millrace {

using CuckooTag = std::uint16_t;

inline namespace MILLRACE_ISA {

/// Returns the lowest slot of a mask, which must not be 0.
constexpr unsigned lowest_slot(std::uint32_t slots) {
  return static_cast<unsigned>(std::countr_zero(slots));
}

/// A bucket. `Own` is the table's own part, 16 bytes.
template <class Own>
struct alignas(64) CuckooBucket {
  static constexpr unsigned kSlots = 8;
  static constexpr std::uint32_t kSlotMask = (1U << kSlots) - 1;

  std::array<CuckooTag, kSlots> tags{};
  std::array<ConnId, kSlots> ids{};
  Own own{};

  /// Returns a mask: bit i is set if slot i has that tag.
  std::uint32_t match(CuckooTag tag) const {
#if defined(__SSE2__)
    const __m128i equal =
        _mm_cmpeq_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(tags.data())),
                        _mm_set1_epi16(static_cast<short>(tag)));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(equal, equal))) & kSlotMask;
#else
    std::uint32_t mask = 0;
    for (unsigned slot = 0; slot < kSlots; ++slot) mask |= std::uint32_t{tags[slot] == tag} << slot;
    return mask;
#endif
  }
  std::uint32_t free() const { return match(0); }
  std::uint32_t live() const { return ~free() & kSlotMask; }
  unsigned free_slots() const { return static_cast<unsigned>(std::popcount(free())); }
};

/// The position of a slot, or nowhere.
struct CuckooPlace {
  static constexpr unsigned kNowhere = 8;
  std::uint32_t bucket = 0;
  unsigned slot = kNowhere;

  explicit operator bool() const { return slot != kNowhere; }
};

/// A power of two of buckets, with records and ids. The index defines only a key's first bucket;
/// the table that owns the index defines the key's other buckets and keeps the invariants.
template <class K, class Own>
class CuckooIndex {
 public:
  using Bucket = CuckooBucket<Own>;
  using Tag = CuckooTag;
  using Place = CuckooPlace;
  static constexpr unsigned kSlots = Bucket::kSlots;
  static_assert(sizeof(Bucket) == 64 && offsetof(Bucket, ids) == 16 && offsetof(Bucket, own) == 48);
  static_assert(Place::kNowhere == kSlots);

  /// Makes an empty index with room for the capacity at `max_load`. Errors: a capacity with its
  /// headroom above 2,000,000,000, or a setting out of its range (usage); no memory (failed).
  static Result<CuckooIndex> create(const TableConfig& config, double max_load) {
    const auto entries = entries_wanted(config, 2'000'000'000);
    if (!entries) return std::unexpected(entries.error());
    const std::size_t buckets = buckets_for(config.capacity, max_load);
    // No more ids than the wanted entries and the draining ones need, so that most insertions into
    // a full table fail without a search.
    const std::size_t count = std::min(buckets * kSlots, *entries) + kDrainingRoom;
    // The largest mapping first, so that a lack of memory mostly shows before pages are touched.
    auto records = Records<K>::create(count, config.state_bytes, config.pages);
    if (!records) return std::unexpected(records.error());
    auto index = Memory::map(buckets * sizeof(Bucket), config.pages);
    if (!index) return std::unexpected(index.error());
    auto ids = IdPool::create(count, config.pages);
    if (!ids) return std::unexpected(ids.error());
    return CuckooIndex(config, std::move(*index), std::move(*records), std::move(*ids), buckets);
  }

  Bucket& bucket(std::uint32_t at) const { return reinterpret_cast<Bucket*>(memory_.data())[at]; }
  std::uint32_t buckets() const { return mask_ + 1; }
  std::size_t slots() const { return std::size_t{buckets()} * kSlots; }

  // Bucket and tag come from opposite ends of the hash, so that entries of a bucket have
  // independent tags at any table size.
  std::uint32_t first_of(Hash hash) const { return static_cast<std::uint32_t>(hash) & mask_; }
  static Tag tag_for(Hash hash) {
    const auto tag = static_cast<Tag>(hash >> 48);
    return tag == 0 ? Tag{1} : tag;
  }

  /// Returns a bucket other than `at`. Called with that bucket and the same bits, returns `at`.
  std::uint32_t across(std::uint32_t at, std::uint64_t bits) const {
    const std::uint32_t distance = static_cast<std::uint32_t>(bits) & mask_;
    return at ^ (distance != 0 ? distance : 1);
  }

  Tag& tag(Place place) const { return bucket(place.bucket).tags[place.slot]; }
  ConnId& id(Place place) const { return bucket(place.bucket).ids[place.slot]; }

  void prefetch(std::uint32_t at) const { detail::prefetch(&bucket(at)); }
  /// Prefetches the record of the first slot with that tag. False if no slot has the tag.
  bool prefetch_match(std::uint32_t at, Tag tag) const {
    const std::uint32_t match = bucket(at).match(tag);
    if (match == 0) return false;
    records.prefetch(bucket(at).ids[lowest_slot(match)]);
    return true;
  }
  /// Does `prefetch_match` for each hash in its first bucket. A hash without a match there is a
  /// straggler if `second(first, tag)` returns a bucket; that bucket is prefetched.
  template <class Second>
  Stragglers prefetch_matches(std::span<const Hash> hashes, const Second& second) const {
    Stragglers stragglers;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const std::uint32_t first = first_of(hashes[i]);
      const Tag tag = tag_for(hashes[i]);
      if (prefetch_match(first, tag)) continue;
      if (const std::optional<std::uint32_t> at = second(first, tag)) {
        prefetch(*at);
        stragglers.add(i);
      }
    }
    return stragglers;
  }
  /// Prefetches the records of matches in the stragglers' second buckets.
  template <class Second>
  void prefetch_stragglers(std::span<const Hash> hashes, Stragglers stragglers,
                           const Second& second) const {
    stragglers.for_each(hashes.size(), [&](std::size_t i) {
      const Tag tag = tag_for(hashes[i]);
      if (const std::optional<std::uint32_t> at = second(first_of(hashes[i]), tag))
        prefetch_match(*at, tag);
    });
  }

  /// Returns the place of the key's entry in bucket `at`, or nowhere.
  Place probe(std::uint32_t at, Tag tag, const K& key) const {
    const Bucket& b = bucket(at);
    for (std::uint32_t match = b.match(tag); match != 0; match &= match - 1) {
      const unsigned slot = lowest_slot(match);
      if (records.header(b.ids[slot]).key == key) return {at, slot};
    }
    return {at};
  }
  /// Returns the first free slot of the bucket, or nowhere.
  Place free_in(std::uint32_t at) const {
    const std::uint32_t free = bucket(at).free();
    return {at, free == 0 ? Place::kNowhere : lowest_slot(free)};
  }

  template <class Each>
  void for_each_live(std::uint32_t at, Each&& each) const {
    for (std::uint32_t live = bucket(at).live(); live != 0; live &= live - 1)
      each(Place{at, lowest_slot(live)});
  }
  /// Does what `for_each_live` does, for an `each` that reads records: first prefetches them all.
  template <class Each>
  void for_each_candidate(std::uint32_t at, Each&& each) const {
    for_each_live(at, [&](Place place) { records.prefetch(id(place)); });
    for_each_live(at, each);
  }

  std::size_t memory_bytes() const {
    return memory_.bytes() + records.memory_bytes() + ids.memory_bytes();
  }
  Pages pages() const { return std::max({memory_.pages(), records.pages(), ids.pages()}); }

  /// True if the ids in live slots all differ, and are as many as the pool's live ids.
  bool ids_add_up() const {
    std::vector<bool> named(records.count());
    std::size_t live = 0;
    bool good = true;
    for (std::uint32_t at = 0; at < buckets(); ++at) {
      for_each_live(at, [&](Place place) {
        const std::uint32_t n = millrace::index(id(place));
        good = good && n < named.size() && !named[n];
        if (n < named.size()) named[n] = true;
        ++live;
      });
    }
    return good && live == ids.live() && ids.check_invariants().has_value();
  }

  Hasher hasher;
  Records<K> records;
  IdPool ids;
  std::size_t capacity = 0;  ///< entries promised

 private:
  CuckooIndex(const TableConfig& config, Memory memory, Records<K> all_records, IdPool all_ids,
              std::size_t buckets)
      : hasher(config.secret),
        records(std::move(all_records)),
        ids(std::move(all_ids)),
        capacity(config.capacity),
        memory_(std::move(memory)),
        mask_(static_cast<std::uint32_t>(buckets - 1)) {}

  /// Returns the number of buckets. A small table gets more room, as its buckets fill less evenly.
  static std::size_t buckets_for(std::size_t capacity, double max_load) {
    const std::size_t places = capacity + (capacity < 512 ? kDrainingRoom : 0);
    return std::bit_ceil(
        static_cast<std::size_t>(std::ceil(static_cast<double>(places) / max_load / kSlots)));
  }

  Memory memory_;
  std::uint32_t mask_;
};

}  // namespace MILLRACE_ISA
}  // namespace millrace
