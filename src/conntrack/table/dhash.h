// `dhash`: DHash of Zhang, Wang, Hua and Lu ("DHash: A Cache-Friendly TCP Lookup Algorithm for Fast
// Network Processing"), as a connection table.
//
// A bucket is one cache line of sixteen 32-bit signatures. The position of a slot determines its
// record. An entry that finds its bucket full takes a record from a reserved pool and joins the
// bucket's conflict list. Entries never move. Most hits read two cache lines, most misses read one.
// dhash_bucket.h and dhash_index.h draw the layout.
//
// The published algorithm keeps one entry for both directions of a session; millrace keeps one for
// each direction. With `kBothWays` an entry is found by the key of either direction, as published,
// and asymmetric signatures are compared twice; hashes must then come from `hash_of`. Without
// `kBothWays` there is no second comparison, since it could find nothing.
//
// Invariants (check_invariants quotes them):
//  1. A live slot holds its key's signature and stands in its key's bucket.
//  2. A live node holds its key's signature and stands in one list, that of its key's bucket.
//  3. Bit L of word i is set exactly if the bucket's list has an entry with major location i.
//  4. A key is live in one place at most.
//  5. Every slot and node is live, draining or free; free nodes are on a list.
//  6. size() is the number of live slots and nodes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "conntrack/table/dhash_bucket.h"
#include "conntrack/table/dhash_index.h"
#include "conntrack/table/dhash_signature.h"
#include "conntrack/table/dhash_statistics.h"
#include "millrace/detail/prefetch.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// The table. `Signature` is a type like those in dhash_signature.h. With `kMajorLocation` a
/// signature prefers a slot, and searches begin there; this changes what `statistics` counts, but
/// not `find`, which compares all slots at once.
template <class K, class Signature, bool kMajorLocation, bool kBothWays = false>
class BasicDHash {
 public:
  static constexpr std::string_view kName =
      kMajorLocation
          ? Signature::kPlainName.substr(0, Signature::kPlainName.size() - sizeof("-plain") + 1)
          : Signature::kPlainName;
  static constexpr std::string_view kSummary = Signature::kSummary;
  /// The load of twelve entries a bucket. The pool is sized for this load under churn.
  static constexpr double kMaxLoad = 0.75;
  static constexpr bool kKeyInRecord = true;
  static constexpr unsigned kSlots = DHashBucket::kSlots;

  /// Makes an empty table. Errors: a capacity with its headroom above 2,574,000,000, or a setting
  /// out of its range (usage); no memory (failed).
  static Result<BasicDHash> create(const TableConfig& config);

  void prefetch(std::span<const Hash> hashes) const {
    for (const Hash hash : hashes) detail::prefetch(&index_.bucket(bucket_of(hash)));
  }

  Stragglers prefetch_records(std::span<const K> keys, std::span<const Hash> hashes) const {
    return prefetch_records<false>(keys, hashes);
  }
  Stragglers prefetch_to_open(std::span<const K> keys, std::span<const Hash> hashes) const {
    return prefetch_records<true>(keys, hashes);
  }
  void prefetch_stragglers(std::span<const K> keys, std::span<const Hash> hashes,
                           Stragglers stragglers) const;

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers stragglers = {}) const {
    stragglers.for_each_last(keys.size(), [&](std::size_t i) {
      ids[i] = probe(bucket_of(hashes[i]), signature_of(keys[i]), keys[i]);
    });
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash) {
    const std::uint32_t at = bucket_of(hash);
    const ConnId id = probe(at, signature_of(key), key);
    if (id != ConnId::none) index_.drain(at, id);
    return id;
  }

  void release(ConnId id) { index_.release(id); }

  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return index_.walk(cursor, about, visit);
  }

  const Hasher& hasher() const { return hasher_; }
  const Records<K>& records() const { return records_; }
  std::size_t size() const { return index_.size(); }
  std::size_t capacity() const { return capacity_; }
  std::size_t slots() const { return index_.slots(); }
  std::size_t memory_bytes() const { return index_.memory_bytes() + records_.memory_bytes(); }
  Pages pages() const { return std::max(index_.pages(), records_.pages()); }
  Result<void> check_invariants() const;

  std::size_t buckets() const { return index_.buckets(); }
  /// Returns the number of records in the pool, for entries in conflict lists.
  std::size_t pool() const { return index_.pool(); }
  /// Returns the counts of lookups of these keys. Slow: not for packets.
  DHashStatistics statistics(std::span<const K> keys) const;

  /// Returns the hash of the key; with `kBothWays`, the same for both directions.
  Hash hash_of(const K& key) const {
    if constexpr (kBothWays) return hasher_(canonical(key));
    return hasher_(key);
  }

 private:
  using Bucket = DHashBucket;
  using Index = DHashIndex<Signature>;
  using Word = Bucket::Word;
  static constexpr bool kSecondComparison = kBothWays && !Signature::kSymmetric;

  template <bool kMayOpen>
  Stragglers prefetch_records(std::span<const K> keys, std::span<const Hash> hashes) const;
  /// Prefetches the record that an insertion into the bucket writes.
  void prefetch_free(std::uint32_t at, Word signature) const {
    if (index_.bucket(at).free() != 0)
      records_.prefetch(Index::slot(at, index_.bucket(at).first_free(start_of(signature))));
  }

  BasicDHash(const TableConfig& config, Index index, Records<K> records)
      : hasher_(config.secret),
        index_(std::move(index)),
        records_(std::move(records)),
        capacity_(config.capacity) {}

  static double pool_for(std::size_t places, double buckets) {
    const auto entries = static_cast<double>(places);
    const auto lists = dhash_theory::in_lists_under_churn(entries, buckets);
    // While the first entries of a table that was filled at one go leave, lists hold more entries
    // than in the long run: 1.23 times as many at the promised load, if entries leave in the order
    // of their arrival.
    return std::min(1.25 * lists.mean + 8 * std::sqrt(std::max(lists.variance, 0.0)), entries);
  }

  std::uint32_t bucket_of(Hash hash) const {
    return static_cast<std::uint32_t>((hash >> 32) * index_.buckets() >> 32);
  }
  static K canonical(const K& key) {
    const auto order = key.source <=> key.destination;
    return order < 0 || (order == 0 && key.source_port <= key.destination_port) ? key
                                                                                : reversed(key);
  }
  static bool same(const K& stored, const K& key) {
    if constexpr (kBothWays) return stored == key || stored == reversed(key);
    return stored == key;
  }

  /// Returns the key's signature, all 32 bits. Replaces a signature that would read as free or
  /// draining, or would do so with its halves swapped. The halves may therefore be swapped before
  /// or after this function.
  static Word signature_of(const K& key) {
    constexpr Word kOthers = 0x7fff7fff;
    const Word signature = Signature::of(key);
    if ((signature & kOthers) == 0) [[unlikely]]
      return 0x55555555;
    if ((signature & kOthers) == kOthers) [[unlikely]]
      return 0xaaaaaaaa;
    return signature;
  }
  static unsigned start_of(Word signature) {
    return kMajorLocation ? major_location<Signature>(signature) : 0;
  }
  static std::uint32_t matches(const Bucket& b, Word signature) {
    if constexpr (kSecondComparison) return b.match(signature) | b.match(halves_swapped(signature));
    return b.match(signature);
  }
  static bool matches(Word stored, Word signature) {
    return Bucket::equal(stored, signature) ||
           (kSecondComparison && Bucket::equal(stored, halves_swapped(signature)));
  }
  /// True if the bucket's list may have the signature.
  static bool may_list(const Bucket& b, Word signature) {
    return b.listed(major_location<Signature>(signature));
  }

  bool is(ConnId id, const K& key) const { return same(records_.header(id).key, key); }
  /// Returns the key's entry, or none.
  ConnId probe(std::uint32_t at, Word signature, const K& key) const {
    const Bucket& b = index_.bucket(at);
    for (std::uint32_t match = matches(b, signature); match != 0; match &= match - 1) {
      const ConnId id = Index::slot(at, static_cast<unsigned>(std::countr_zero(match)));
      if (is(id, key)) return id;
    }
    if (!may_list(b, signature)) [[likely]]
      return ConnId::none;
    return look_in_list(at, signature, key);
  }
  ConnId look_in_list(std::uint32_t at, Word signature, const K& key) const {
    return index_.find_in_list(at, [&](ConnId id) {
      return matches(index_.node(id).signature, signature) && is(id, key);
    });
  }

  template <WorthFunction W>
  ConnId least_worthy(std::uint32_t at, const W& worth) const;
  void count(const K& key, DHashStatistics& all) const;
  std::string_view wrong_entry(std::uint32_t at, ConnId id) const;

  Hasher hasher_;
  Index index_;
  Records<K> records_;
  std::size_t capacity_ = 0;
};

template <class K, class S, bool kMajor, bool kBoth>
auto BasicDHash<K, S, kMajor, kBoth>::create(const TableConfig& config) -> Result<BasicDHash> {
  const auto entries = entries_wanted(config, 2'574'000'000);
  if (!entries) return std::unexpected(entries.error());
  const double buckets = std::ceil(static_cast<double>(config.capacity) / kMaxLoad / kSlots);
  const double pool = pool_for(*entries + kDrainingRoom, buckets);
  auto index = Index::create(static_cast<std::uint32_t>(buckets), static_cast<std::uint32_t>(pool),
                             config.pages);
  if (!index) return std::unexpected(index.error());
  auto records =
      Records<K>::create(index->slots() + index->pool(), config.state_bytes, config.pages);
  if (!records) return std::unexpected(records.error());
  return BasicDHash(config, std::move(*index), std::move(*records));
}

template <class K, class S, bool kMajor, bool kBoth>
template <bool kMayOpen>
Stragglers BasicDHash<K, S, kMajor, kBoth>::prefetch_records(std::span<const K> keys,
                                                             std::span<const Hash> hashes) const {
  Stragglers stragglers(kMayOpen);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint32_t at = bucket_of(hashes[i]);
    const Word signature = signature_of(keys[i]);
    const std::uint32_t match = matches(index_.bucket(at), signature);
    if (match != 0) {
      records_.prefetch(Index::slot(at, static_cast<unsigned>(std::countr_zero(match))));
    } else if (may_list(index_.bucket(at), signature)) {
      stragglers.add(i);
      detail::prefetch(&index_.head(at));
    } else if constexpr (kMayOpen) {
      prefetch_free(at, signature);
    }
  }
  return stragglers;
}

/// Prefetches the first node of each straggler's list, then records of the list: each pass
/// prefetches what the next pass reads. `prefetch_records` has prefetched the list's head.
template <class K, class S, bool kMajor, bool kBoth>
void BasicDHash<K, S, kMajor, kBoth>::prefetch_stragglers(std::span<const K> keys,
                                                          std::span<const Hash> hashes,
                                                          Stragglers stragglers) const {
  stragglers.for_each(keys.size(), [&](std::size_t i) {
    const ConnId head = index_.head(bucket_of(hashes[i]));
    if (head != ConnId::none) detail::prefetch(&index_.node(head));
  });
  stragglers.for_each(keys.size(), [&](std::size_t i) {
    const std::uint32_t at = bucket_of(hashes[i]);
    const Word signature = signature_of(keys[i]);
    bool listed = false;
    index_.for_each_in_list(at, [&](ConnId id) {
      if (!matches(index_.node(id).signature, signature)) return;
      records_.prefetch(id);
      listed = true;
    });
    if (!listed && stragglers.may_open()) prefetch_free(at, signature);
  });
}

template <class K, class S, bool kMajor, bool kBoth>
template <WorthFunction W>
Insertion BasicDHash<K, S, kMajor, kBoth>::insert(const K& key, Hash hash, const W& worth) {
  const std::uint32_t at = bucket_of(hash);
  const Word signature = signature_of(key);
  if (const ConnId found = probe(at, signature, key); found != ConnId::none)
    return Insertion::met(found, worth(found) != 0);
  ConnId displaced = ConnId::none;
  ConnId id = index_.take(at, start_of(signature));
  if (id == ConnId::none) {
    if constexpr (std::is_same_v<W, KeepAll>) return {};
    id = displaced = least_worthy(at, worth);
    if (id == ConnId::none) return {};
    index_.vacate(at, id);
  }
  index_.occupy(at, id, signature);
  records_.header(id).key = key;
  return {id, Insertion::Outcome::inserted, displaced};
}

template <class K, class S, bool kMajor, bool kBoth>
template <WorthFunction W>
ConnId BasicDHash<K, S, kMajor, kBoth>::least_worthy(std::uint32_t at, const W& worth) const {
  index_.for_each_in_slots(at, [&](ConnId id) { records_.prefetch(id); });
  Victim victim(worth, ConnId::none);
  index_.for_each(at, [&](ConnId id) { victim.consider(id, id); });
  return victim.place();
}

template <class K, class S, bool kMajor, bool kBoth>
DHashStatistics BasicDHash<K, S, kMajor, kBoth>::statistics(std::span<const K> keys) const {
  DHashStatistics all;
  all.entries = size();
  for (std::uint32_t at = 0; at < index_.buckets(); ++at)
    index_.for_each_in_list(at, [&](ConnId) { ++all.entries_in_lists; });
  for (const K& key : keys) count(key, all);
  return all;
}

template <class K, class S, bool kMajor, bool kBoth>
void BasicDHash<K, S, kMajor, kBoth>::count(const K& key, DHashStatistics& all) const {
  const std::uint32_t at = bucket_of(hash_of(key));
  const Word signature = signature_of(key);
  const auto wins = [&](ConnId id) {
    const Word stored = index_.signature(id);
    return all.compare(kSecondComparison && !Bucket::equal(stored, signature),
                       matches(stored, signature), [&] { return is(id, key); });
  };
  ++all.lookups;
  for (unsigned i = 0; i < kSlots; ++i) {
    if (!wins(Index::slot(at, (start_of(signature) + i) % kSlots))) continue;
    all.first_hits += i == 0;
    return;
  }
  if (may_list(index_.bucket(at), signature)) index_.find_in_list(at, wins);
}

template <class K, class S, bool kMajor, bool kBoth>
Result<void> BasicDHash<K, S, kMajor, kBoth>::check_invariants() const {
  std::string_view wrong = index_.wrong();
  for (std::uint32_t at = 0; at < index_.buckets() && wrong.empty(); ++at) {
    index_.for_each(at, [&](ConnId id) {
      if (wrong.empty()) wrong = wrong_entry(at, id);
    });
  }
  if (wrong.empty()) return {};
  return std::unexpected(Error{std::string(kName) + ": " + std::string(wrong)});
}

/// Returns the invariant, of 1, 2 and 4, that an entry breaks, or nothing.
template <class K, class S, bool kMajor, bool kBoth>
std::string_view BasicDHash<K, S, kMajor, kBoth>::wrong_entry(std::uint32_t at, ConnId id) const {
  const K& key = records_.header(id).key;
  const Word signature = signature_of(key);
  if (bucket_of(hash_of(key)) != at || !Bucket::equal(index_.signature(id), signature))
    return index_.in_slot(id) ? "1: a slot's signature or bucket is wrong"
                              : "2: a node's signature or list is wrong";
  return probe(at, signature, key) == id ? "" : "4: a key is live twice, or not found";
}

/// The paper's best variant: algorithm 4 with major location. `-plain` is without major location.
template <class K>
using DHash = BasicDHash<K, CrcPairSignature, true>;
template <class K>
using DHashPlain = BasicDHash<K, CrcPairSignature, false>;
template <class K>
using DHashXor = BasicDHash<K, XorSignature, true>;
template <class K>
using DHashCrcXor = BasicDHash<K, CrcOfXorSignature, true>;
template <class K>
using DHashXorCrc = BasicDHash<K, XorOfCrcSignature, true>;

static_assert(DHash<KeyV4>::kName == "dhash" && DHashPlain<KeyV4>::kName == "dhash-plain");

}  // namespace MILLRACE_ISA

static_assert(ConnectionTable<DHash<KeyV4>, KeyV4> && ConnectionTable<DHash<KeyV6>, KeyV6>);
static_assert(ConnectionTable<DHashPlain<KeyV4>, KeyV4> && ConnectionTable<DHashXor<KeyV6>, KeyV6>);

}  // namespace millrace
