// `chained`: the table that most stacks have (FastClick's HashTableMP, Libnids): an array of
// buckets, each the head of a singly linked list of records.
//
//     heads   0       4       8
//             +-------+-------+---           id of the first record, or none
//             | head0 | head1 |  ...
//             +-------+-------+---
//     record  0                                    stride - 4     stride
//             +---------------------+--------------+--------------+
//             | RecordHeader        | State        | next         |
//             +---------------------+--------------+--------------+
//
// The link stands in the record, so that a step along a chain reads one cache line if the record is
// not larger than a line. New entries go to the head of their chain. Ids come from a pool. If the
// pool is empty, an insertion may evict the least worthy entry of all chains with heads in the
// cache line of the new key's head: that head's own chain is often empty.
//
// Invariants (check_invariants quotes them):
//  1. Every chain ends, and every entry stands in the chain of its key's bucket.
//  2. A key is live once.
//  3. An id is live (in one chain), draining or free.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/table/id_pool.h"
#include "millrace/detail/prefetch.h"
#include "millrace/table.h"

namespace millrace {

/// No locks: only one thread at a time may use the table.
struct NoLocks {
  static constexpr bool kShared = false;
  struct Lock {
    void lock() {}
    void unlock() {}
    void lock_shared() {}
    void unlock_shared() {}
  };
  using Bucket = Lock;
  using Table = Lock;
};

/// The table. `Locks` has lock types `Bucket`, which guards a bucket's chain, and `Table`, which
/// guards the pool of ids.
template <class K, class Locks>
class BasicChained {
 public:
  static constexpr std::string_view kName = "chained";
  static constexpr std::string_view kSummary = "a list of records behind each bucket";
  /// The load in entries per record: a bucket holds any number of entries.
  static constexpr double kMaxLoad = 1.0;
  static constexpr bool kKeyInRecord = true;
  static constexpr bool kHoldsHeadroom = true;
  /// Buckets for each entry of the capacity, if `create` is called without a number of buckets
  /// (docs/chained.md says why).
  static constexpr std::size_t kBucketsPerEntry = 4;

  /// Makes an empty table with `kBucketsPerEntry` buckets for each entry of the capacity, 2^32 - 1
  /// at most. Errors: as for the next function.
  static Result<BasicChained> create(const TableConfig& config) {
    return create(config,
                  std::min(config.capacity, kMaxBuckets / kBucketsPerEntry) * kBucketsPerEntry);
  }
  /// Makes an empty table of 1 to 2^32 - 1 buckets. Errors: a capacity with its headroom above
  /// 4,290,000,000, a setting or `buckets` out of its range (usage); no memory (failed).
  static Result<BasicChained> create(const TableConfig& config, std::size_t buckets);

  void prefetch(std::span<const Hash> hashes) const {
    for (const Hash hash : hashes) detail::prefetch(&head(hash));
  }
  Stragglers prefetch_records(std::span<const K>, std::span<const Hash> hashes) const {
    for (const Hash hash : hashes)
      if (const ConnId id = glimpse(head(hash)); id != ConnId::none) records_.prefetch(id);
    return {};
  }
  /// Does nothing: `find` reads the rest of the chains (without locks, side by side).
  void prefetch_stragglers(std::span<const K>, std::span<const Hash>, Stragglers) const {}

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers = {}) const {
    if constexpr (Locks::kShared) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::shared_lock guard(head(hashes[i]).lock);
        ids[i] = *link_to(keys[i], hashes[i]);
      }
      return;
    }
    for (std::size_t from = 0; from < keys.size(); from += kTogether) {
      const std::size_t count = std::min(kTogether, keys.size() - from);
      find_together(&keys[from], &hashes[from], &ids[from], count);
    }
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash);

  void release(ConnId id) {
    const std::lock_guard guard(*pool_lock_);
    ids_.release(id);
  }

  /// Walks in the order of ids: an entry keeps its id, and no chain need be searched.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return ids_.walk(cursor, about, visit);
  }

  const Hasher& hasher() const { return hasher_; }
  const Records<K>& records() const { return records_; }
  std::size_t size() const { return ids_.live(); }
  std::size_t capacity() const { return capacity_; }
  /// Returns the number of records.
  std::size_t slots() const { return records_.count(); }
  std::size_t buckets() const { return buckets_; }
  std::size_t memory_bytes() const {
    return heads_.bytes() + records_.memory_bytes() + ids_.memory_bytes();
  }
  Pages pages() const { return std::max({heads_.pages(), records_.pages(), ids_.pages()}); }
  Result<void> check_invariants() const;

 private:
  static constexpr std::size_t kMaxBuckets = 0xffffffff;
  /// Chains that `find` searches side by side.
  static constexpr std::size_t kTogether = 64;

  struct Head {
    ConnId first = ConnId::none;
    [[no_unique_address]] typename Locks::Bucket lock;
  };

  BasicChained(const TableConfig& config, Memory memory, Records<K> records, IdPool ids,
               std::uint32_t buckets)
      : hasher_(config.secret),
        heads_(std::move(memory)),
        records_(std::move(records)),
        ids_(std::move(ids)),
        links_(reinterpret_cast<std::byte*>(&records_.header(ConnId{0})) + records_.stride() -
               sizeof(ConnId)),
        stride_(records_.stride()),
        buckets_(buckets),
        capacity_(config.capacity) {
    std::uninitialized_value_construct_n(heads(), buckets);
  }

  Head* heads() const { return reinterpret_cast<Head*>(heads_.data()); }
  std::size_t bucket_of(Hash hash) const { return (hash >> 32) * buckets_ >> 32; }
  Head& head(Hash hash) const { return heads()[bucket_of(hash)]; }
  /// Returns the first id without the bucket's lock: a hint, to prefetch.
  static ConnId glimpse(Head& head) {
    return std::atomic_ref(head.first).load(std::memory_order_relaxed);
  }
  static void set_first(Head& head, ConnId id) {
    std::atomic_ref(head.first).store(id, std::memory_order_relaxed);
  }
  ConnId& next(ConnId id) const { return *reinterpret_cast<ConnId*>(links_ + index(id) * stride_); }
  /// Returns the link to the key's entry: a head, or the link in another entry. The link is none if
  /// the key has no entry.
  ConnId* link_to(const K& key, Hash hash) const {
    ConnId* link = &head(hash).first;
    while (*link != ConnId::none && !(records_.header(*link).key == key)) link = &next(*link);
    return link;
  }
  ConnId take_id();
  void find_together(const K* keys, const Hash* hashes, ConnId* ids, std::size_t count) const;
  template <WorthFunction W>
  ConnId* link_to_least_worthy(Hash hash, const W& worth) const;

  Hasher hasher_;
  Memory heads_;
  Records<K> records_;
  IdPool ids_;
  std::byte* links_ = nullptr;  // the link in record 0
  std::size_t stride_ = 0;
  std::uint32_t buckets_ = 0;
  std::size_t capacity_ = 0;
  std::unique_ptr<typename Locks::Table> pool_lock_ = std::make_unique<typename Locks::Table>();
};

template <class K>
using Chained = BasicChained<K, NoLocks>;

template <class K, class Locks>
auto BasicChained<K, Locks>::create(const TableConfig& config, std::size_t buckets)
    -> Result<BasicChained> {
  const auto entries = entries_wanted(config, 4'290'000'000);
  if (!entries) return std::unexpected(entries.error());
  if (buckets == 0 || buckets > kMaxBuckets) {
    return std::unexpected(Error{
        "a chained table must have 1 to 4,294,967,295 buckets, not " + std::to_string(buckets),
        Error::Kind::usage});
  }
  // The largest mapping first, so that a lack of memory mostly shows before pages are touched.
  auto records = Records<K>::create(*entries + kDrainingRoom, config.state_bytes + sizeof(ConnId),
                                    config.pages);
  if (!records) return std::unexpected(records.error());
  auto heads = Memory::map(buckets * sizeof(Head), config.pages);
  if (!heads) return std::unexpected(heads.error());
  auto ids = IdPool::create(records->count(), config.pages);
  if (!ids) return std::unexpected(ids.error());
  return BasicChained(config, std::move(*heads), std::move(*records), std::move(*ids),
                      static_cast<std::uint32_t>(buckets));
}

/// Searches chains side by side: one step in each chain, then one more in each chain that has not
/// ended, so that the fetches of a step overlap.
template <class K, class Locks>
void BasicChained<K, Locks>::find_together(const K* keys, const Hash* hashes, ConnId* ids,
                                           std::size_t count) const {
  std::array<std::uint8_t, kTogether> going;
  std::size_t left = 0;
  const auto step = [&](std::size_t i, ConnId id) {
    if (id != ConnId::none && !(records_.header(id).key == keys[i])) {
      id = next(id);
      if (id != ConnId::none) {
        records_.prefetch(id);
        going[left++] = static_cast<std::uint8_t>(i);
      }
    }
    ids[i] = id;
  };
  for (std::size_t i = 0; i < count; ++i) step(i, head(hashes[i]).first);
  while (left != 0) {
    const std::size_t now = std::exchange(left, 0);
    for (std::size_t g = 0; g < now; ++g) step(going[g], ids[going[g]]);
  }
}

template <class K, class Locks>
template <WorthFunction W>
Insertion BasicChained<K, Locks>::insert(const K& key, Hash hash, const W& worth) {
  static_assert(!Locks::kShared || std::is_same_v<W, KeepAll>, "under sharing ids must drain");
  const std::lock_guard guard(head(hash).lock);
  if (const ConnId found = *link_to(key, hash); found != ConnId::none)
    return Insertion::met(found, worth(found) != 0);
  ConnId displaced = ConnId::none;
  ConnId id = take_id();
  if (id == ConnId::none) {
    if constexpr (std::is_same_v<W, KeepAll>) return {};
    ConnId* const link = link_to_least_worthy(hash, worth);
    if (link == nullptr) return {};
    id = displaced = *link;
    *link = next(id);
  }
  next(id) = head(hash).first;
  set_first(head(hash), id);
  records_.header(id).key = key;
  return {id, Insertion::Outcome::inserted, displaced};
}

template <class K, class Locks>
ConnId BasicChained<K, Locks>::take_id() {
  const std::lock_guard guard(*pool_lock_);
  const ConnId id = ids_.take();
  records_.prefetch(ids_.upcoming());
  return id;
}

/// Returns the link to the least worthy entry of the chains with heads in the cache line of the
/// hash's head; null if no entry is worth less than the newcomer.
template <class K, class Locks>
template <WorthFunction W>
ConnId* BasicChained<K, Locks>::link_to_least_worthy(Hash hash, const W& worth) const {
  constexpr std::size_t kHeadsALine = 64 / sizeof(Head);
  const std::size_t own = bucket_of(hash);
  const std::size_t from = own - own % kHeadsALine;
  const std::size_t to = std::min<std::size_t>(from + kHeadsALine, buckets_);
  for (std::size_t at = from; at < to; ++at)
    if (heads()[at].first != ConnId::none) records_.prefetch(heads()[at].first);
  Victim<W, ConnId*> victim(worth, nullptr);
  for (std::size_t at = from; at < to; ++at) {
    for (ConnId* link = &heads()[at].first; *link != ConnId::none; link = &next(*link))
      victim.consider(*link, link);
  }
  return victim.place();
}

template <class K, class Locks>
ConnId BasicChained<K, Locks>::erase(const K& key, Hash hash) {
  const std::lock_guard bucket_guard(head(hash).lock);
  ConnId* const link = link_to(key, hash);
  const ConnId id = *link;
  if (id == ConnId::none) return id;
  std::atomic_ref(*link).store(next(id), std::memory_order_relaxed);
  const std::lock_guard pool_guard(*pool_lock_);
  ids_.give_back(id);
  return id;
}

template <class K, class Locks>
Result<void> BasicChained<K, Locks>::check_invariants() const {
  const auto broken = [](const char* what) {
    return std::unexpected(Error{std::string("chained: ") + what});
  };
  std::vector<bool> seen(records_.count());
  std::size_t live = 0;
  for (const Head& own : std::span<const Head>(heads(), buckets_)) {
    for (ConnId id = own.first; id != ConnId::none; id = next(id), ++live) {
      if (index(id) >= seen.size() || seen[index(id)]) return broken("1: a chain does not end");
      seen[index(id)] = true;
      const K& key = records_.header(id).key;
      if (&head(hasher_(key)) != &own)
        return broken("1: an entry stands in another bucket's chain");
      if (*link_to(key, hasher_(key)) != id) return broken("2: a key is live twice");
    }
  }
  std::size_t visited = 0;
  for (auto at = Cursor::begin; at != Cursor::end;) {
    at = walk(at, 4096, [&](ConnId id) {
      visited += seen[index(id)];
      seen[index(id)] = false;
    });
  }
  if (live != size() || visited != live)
    return broken("3: the ids in chains are not the pool's live ids");
  return ids_.check_invariants();
}

static_assert(ConnectionTable<Chained<KeyV4>, KeyV4> && ConnectionTable<Chained<KeyV6>, KeyV6>);

}  // namespace millrace
