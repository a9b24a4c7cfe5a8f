// `cuckoo` and `cuckoo-ext`: DPDK's rte_hash as a connection table.
//
// A bucket is a cache line: 8 tags of 16 bits and 8 positions in a store of keys. A key has two
// buckets. An insertion that finds both full moves other keys to their other bucket (a
// breadth-first search of some 250 buckets). If that fails, the table is full or, with extendable
// buckets, chains a further bucket. Keys move between buckets but keep their positions: a position
// is the `ConnId`.
//
// `rte_hash_adaptor.h` wraps rte_hash itself. This header adds what a connection table needs beyond
// rte_hash: live ids, draining ids, and eviction.
//
// rte_hash of DPDK 22.11 cannot hold back a removed key's position (NO_FREE_ON_DEL) in a table with
// extendable buckets: rte_hash would write through a null pointer when a chained bucket becomes
// empty. Such a table relies on the order of positions instead: rte_hash gives out free positions
// first in, first out, so freed positions that are not released yet are the last in the queue, and
// an insertion that would reach them is refused.
//
// Invariants (check_invariants quotes them):
//  1. The record of a live id holds the key that rte_hash has at that position.
//  2. rte_hash has no further keys.
//  3. size() is the number of live ids.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/live_bits.h"
#include "conntrack/table/rte_hash_adaptor.h"
#include "millrace/memory.h"
#include "millrace/table.h"

namespace millrace {

/// The table. `kFlags` are flags of rte_hash (`RteHashFlags`).
template <class K, std::uint8_t kFlags>
class CuckooRteHash {
  static constexpr bool kExtendable = (kFlags & RteHashFlags::kExtendable) != 0;

 public:
  static constexpr std::string_view kName = kExtendable ? "cuckoo-ext" : "cuckoo";
  static constexpr std::string_view kSummary =
      kExtendable
          ? "DPDK's rte_hash with extendable buckets: refuses no key while positions are free"
          : "DPDK's rte_hash: 8 tags a bucket, two buckets a key, keys in a store of their own";
  /// The load up to which no insertion is refused. The numbers of a key's two buckets differ by its
  /// tag of 16 bits only. A table with more than 2^16 buckets therefore consists of parts that do
  /// not exchange keys, and the fullest part is the first to refuse a key. The first refusal occurs
  /// at a load of 0.97 with 2^20 slots, 0.965 with 2^24, some 0.92 with 2^27. Chained buckets have
  /// no such limit, but each costs one more cache line.
  static constexpr double kMaxLoad = kExtendable ? 0.95 : 0.9;
  static constexpr bool kKeyInRecord = false;
  static constexpr bool kHoldsHeadroom = kExtendable;

  /// Makes an empty table. Errors: a capacity or headroom out of its range, or too large a state
  /// (usage); no memory, or no free heap in DPDK (failed).
  static Result<CuckooRteHash> create(const TableConfig& config);

  /// Does nothing: rte_hash does not show its buckets, and its burst lookup prefetches them itself.
  void prefetch(std::span<const Hash>) const {}
  Stragglers prefetch_records(std::span<const K>, std::span<const Hash>) const { return {}; }
  void prefetch_stragglers(std::span<const K>, std::span<const Hash>, Stragglers) const {}

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers = {}) const {
    index_.find(keys.data(), sizeof(K), hashes.first(keys.size()), ids);
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash) {
    const ConnId id = index_.remove(&key, hash);
    if (id == ConnId::none) return id;
    vacate(id);
    ++draining_;
    return id;
  }

  /// Makes a draining id reusable. With extendable buckets, ids must be released in the order in
  /// which they were erased.
  void release(ConnId id) {
    if constexpr (!kExtendable) index_.release(id);
    --draining_;
  }

  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return live_.walk(cursor, about, visit);
  }

  const Hasher& hasher() const { return hasher_; }
  const Records<K>& records() const { return records_; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  std::size_t slots() const { return index_.slots(); }
  std::size_t memory_bytes() const {
    return index_.memory_bytes() + records_.memory_bytes() + bits_.bytes();
  }
  Pages pages() const { return std::max({index_.pages(), records_.pages(), bits_.pages()}); }
  Result<void> check_invariants() const;

 private:
  static constexpr std::uint8_t kIndexFlags =
      kExtendable ? kFlags : static_cast<std::uint8_t>(kFlags | RteHashFlags::kReleaseLater);
  // With fewer slots there are so few buckets that a key's second bucket is too often its first.
  static constexpr std::size_t kMinSlots = 512;

  CuckooRteHash(const TableConfig& config, RteHash index, Records<K> records, Memory bits)
      : hasher_(config.secret),
        index_(std::move(index)),
        records_(std::move(records)),
        capacity_(config.capacity),
        bits_(std::move(bits)),
        live_(bits_.data(), records_.count()) {}

  static Result<std::size_t> slots_for(const TableConfig& config);

  ConnId find_one(const K& key, Hash hash) const {
    ConnId id = ConnId::none;
    index_.find(&key, sizeof(K), {&hash, 1}, {&id, 1});
    return id;
  }
  /// True if the next position that rte_hash gives out is not a draining id.
  bool has_free_position() const { return size_ + draining_ < records_.count(); }

  Insertion occupy(ConnId id, const K& key, ConnId displaced) {
    live_.flip(id);
    records_.header(id).key = key;
    ++size_;
    return {id, Insertion::Outcome::inserted, displaced};
  }
  void vacate(ConnId id) {
    live_.flip(id);
    --size_;
  }
  template <WorthFunction W>
  Insertion displace(const K& key, Hash hash, const W& worth);

  Hasher hasher_;
  RteHash index_;
  Records<K> records_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  Memory bits_;
  LiveBits live_;
  std::size_t draining_ = 0;
};

template <class K, std::uint8_t kFlags>
Result<std::size_t> CuckooRteHash<K, kFlags>::slots_for(const TableConfig& config) {
  const auto promise = [](std::size_t slots) {
    return static_cast<std::size_t>(static_cast<double>(slots) * kMaxLoad);
  };
  const auto entries = entries_wanted(config, promise(RteHash::max_slots(sizeof(K))));
  if (!entries) return std::unexpected(entries.error());
  // A table without chains cannot use headroom: its last slots are hard to reach.
  const std::size_t positions = (kExtendable ? *entries : config.capacity) + kDrainingRoom;
  std::size_t slots = kMinSlots;
  while (config.capacity > promise(slots) || positions > slots - 1) slots *= 2;
  return slots;
}

template <class K, std::uint8_t kFlags>
auto CuckooRteHash<K, kFlags>::create(const TableConfig& config) -> Result<CuckooRteHash> {
  const auto slots = slots_for(config);
  if (!slots) return std::unexpected(slots.error());
  auto hash = RteHash::create(*slots, sizeof(K), kIndexFlags, config.pages);
  if (!hash) return std::unexpected(hash.error());
  auto records = Records<K>::create(*slots - 1, config.state_bytes, config.pages);
  if (!records) return std::unexpected(records.error());
  auto bits = Memory::map(LiveBits::words(*slots) * 8, config.pages);
  if (!bits) return std::unexpected(bits.error());
  return CuckooRteHash(config, std::move(*hash), std::move(*records), std::move(*bits));
}

template <class K, std::uint8_t kFlags>
template <WorthFunction W>
Insertion CuckooRteHash<K, kFlags>::insert(const K& key, Hash hash, const W& worth) {
  if (has_free_position()) {
    const ConnId id = index_.add(&key, hash);
    if (id != ConnId::none && live_[id]) return Insertion::met(id, worth(id) != 0);
    if (id != ConnId::none) return occupy(id, key, ConnId::none);
  } else if (const ConnId id = find_one(key, hash); id != ConnId::none) {
    return Insertion::met(id, worth(id) != 0);
  }
  if constexpr (std::is_same_v<W, KeepAll>) return {};
  return displace(key, hash, worth);
}

template <class K, std::uint8_t kFlags>
template <WorthFunction W>
Insertion CuckooRteHash<K, kFlags>::displace(const K& key, Hash hash, const W& worth) {
  const bool last = !has_free_position();
  // The evicted entry's position would queue behind the draining ids.
  if (last && kExtendable && draining_ != 0) return {};
  Victim victim(worth, ConnId::none);
  index_.for_each_candidate(hash, [&](ConnId id) { victim.consider(id, id); });
  const ConnId least = victim.place();
  if (least == ConnId::none) return {};
  const K leaving = records_.header(least).key;
  if (last) {
    index_.remove(&leaving, hasher_(leaving));
    if constexpr (!kExtendable) index_.release(least);
    vacate(least);
  } else {
    erase(leaving, hasher_(leaving));
  }
  const ConnId id = index_.add(&key, hash);
  // `add` cannot fail: one of the key's two buckets has room now.
  if (id == ConnId::none) return {ConnId::none, Insertion::Outcome::full, least};
  return occupy(id, key, least);
}

template <class K, std::uint8_t kFlags>
Result<void> CuckooRteHash<K, kFlags>::check_invariants() const {
  const auto broken = [](const std::string& rule) {
    return std::unexpected(Error{std::string(kName) + ": " + rule});
  };
  std::size_t live = 0;
  for (std::uint32_t i = 0; i < records_.count(); ++i) {
    const ConnId id{i};
    if (!live_[id]) continue;
    ++live;
    const K& key = records_.header(id).key;
    if (find_one(key, hasher_(key)) != id)
      return broken("1: a record's key is not at its position " + std::to_string(i));
  }
  if (live != size_) return broken("3: size() is not the number of live ids");
  if (index_.taken() != size_ + (kExtendable ? 0 : draining_))
    return broken("2: rte_hash has keys that no live id has");
  return {};
}

template <class K>
using Cuckoo = CuckooRteHash<K, RteHashFlags::kNone>;
template <class K>
using CuckooExtendable = CuckooRteHash<K, RteHashFlags::kExtendable>;

static_assert(ConnectionTable<Cuckoo<KeyV4>, KeyV4> && ConnectionTable<Cuckoo<KeyV6>, KeyV6>);
static_assert(ConnectionTable<CuckooExtendable<KeyV4>, KeyV4> &&
              ConnectionTable<CuckooExtendable<KeyV6>, KeyV6>);

}  // namespace millrace
