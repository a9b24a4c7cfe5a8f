// What `cuckoo++` and `horton` share: a bucket of one cache line, and the index of such buckets
// with the records and ids that belong to it.
//
//      0      2           16    20            48                 64
//      +------+--     ----+-----+--     ------+------------------+
//      | tag0 | ... tag7  | id0 |  ...   id7  | the table's own  |
//      +------+--     ----+-----+--     ------+------------------+
//      tag: 0 free, else live
//
// Entries move between buckets, so ids come from a pool and say nothing about a slot. Keys stand in
// the records only: whatever moves an entry has to make do with bucket and tag.
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

/// Of a mask of slots that is not 0.
constexpr unsigned lowest_slot(std::uint32_t slots) {
  return static_cast<unsigned>(std::countr_zero(slots));
}

/// `Own` are the 16 bytes that the table adds.
template <class Own>
struct alignas(64) CuckooBucket {
  static constexpr unsigned kSlots = 8;
  static constexpr std::uint32_t kSlotMask = (1U << kSlots) - 1;

  std::array<CuckooTag, kSlots> tags{};
  std::array<ConnId, kSlots> ids{};
  Own own{};

  /// Bit i is set where slot i has that tag.
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

/// Where an entry stands, or could.
struct CuckooPlace {
  static constexpr unsigned kNowhere = 8;
  std::uint32_t bucket = 0;
  unsigned slot = kNowhere;

  explicit operator bool() const { return slot != kNowhere; }
};

/// Buckets, a power of two of them, with records and ids; no rule which bucket is whose but the
/// first one's. Plain parts: the table that owns the index sees to the invariants.
template <class K, class Own>
class CuckooIndex {
 public:
  using Bucket = CuckooBucket<Own>;
  using Tag = CuckooTag;
  using Place = CuckooPlace;
  static constexpr unsigned kSlots = Bucket::kSlots;
  static_assert(sizeof(Bucket) == 64 && offsetof(Bucket, ids) == 16 && offsetof(Bucket, own) == 48);
  static_assert(Place::kNowhere == kSlots);

  static Result<CuckooIndex> create(const TableConfig& config, double max_load) {
    const auto entries = entries_wanted(config, 2'000'000'000);
    if (!entries) return std::unexpected(entries.error());
    const std::size_t buckets = buckets_for(config.capacity, max_load);
    // No more than what is wanted and may drain, so that *full* is mostly known without a search.
    const std::size_t count = std::min(buckets * kSlots, *entries) + kDrainingRoom;
    // The largest part first: a lack of memory mostly shows before pages were touched.
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

  // Bucket and tag are cut from opposite ends of the hash, so entries of one bucket have
  // independent tags whatever the size is.
  std::uint32_t first_of(Hash hash) const { return static_cast<std::uint32_t>(hash) & mask_; }
  static Tag tag_for(Hash hash) {
    const auto tag = static_cast<Tag>(hash >> 48);
    return tag == 0 ? Tag{1} : tag;
  }

  /// Another bucket than `at`, and with the same bits the way back.
  std::uint32_t across(std::uint32_t at, std::uint64_t bits) const {
    const std::uint32_t distance = static_cast<std::uint32_t>(bits) & mask_;
    return at ^ (distance != 0 ? distance : 1);
  }

  Tag& tag(Place place) const { return bucket(place.bucket).tags[place.slot]; }
  ConnId& id(Place place) const { return bucket(place.bucket).ids[place.slot]; }

  void prefetch(std::uint32_t at) const { detail::prefetch(&bucket(at)); }
  /// Begins to fetch the record of the first slot of that tag; false where there is none.
  bool prefetch_match(std::uint32_t at, Tag tag) const {
    const std::uint32_t match = bucket(at).match(tag);
    if (match == 0) return false;
    records.prefetch(bucket(at).ids[lowest_slot(match)]);
    return true;
  }
  /// The same for each hash in its first bucket. Those without a match there are stragglers if
  /// `second(first, tag)` is a bucket, which is begun to be fetched.
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
  template <class Second>
  void prefetch_stragglers(std::span<const Hash> hashes, Stragglers stragglers,
                           const Second& second) const {
    stragglers.for_each(hashes.size(), [&](std::size_t i) {
      const Tag tag = tag_for(hashes[i]);
      if (const std::optional<std::uint32_t> at = second(first_of(hashes[i]), tag))
        prefetch_match(*at, tag);
    });
  }

  Place look(std::uint32_t at, Tag tag, const K& key) const {
    const Bucket& b = bucket(at);
    for (std::uint32_t match = b.match(tag); match != 0; match &= match - 1) {
      const unsigned slot = lowest_slot(match);
      if (records.header(b.ids[slot]).key == key) return {at, slot};
    }
    return {at};
  }
  /// The first free slot, if any.
  Place free_in(std::uint32_t at) const {
    const std::uint32_t free = bucket(at).free();
    return {at, free == 0 ? Place::kNowhere : lowest_slot(free)};
  }

  template <class Each>
  void for_each_live(std::uint32_t at, Each&& each) const {
    for (std::uint32_t live = bucket(at).live(); live != 0; live &= live - 1)
      each(Place{at, lowest_slot(live)});
  }
  /// The same, where `each` reads the records, which are fetched side by side.
  template <class Each>
  void for_each_candidate(std::uint32_t at, Each&& each) const {
    for_each_live(at, [&](Place place) { records.prefetch(id(place)); });
    for_each_live(at, each);
  }

  std::size_t memory_bytes() const {
    return memory_.bytes() + records.memory_bytes() + ids.memory_bytes();
  }
  Pages pages() const { return std::max({memory_.pages(), records.pages(), ids.pages()}); }

  /// The ids in live slots are as many as the pool has live, and no two are the same.
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

  /// The buckets of a small table differ more: that gets more room.
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
