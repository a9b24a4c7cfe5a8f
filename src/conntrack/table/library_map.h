// An adaptor that makes connection tables of libraries' hash maps.
//
// The library's map holds keys and ids, an array of records stands beside it, and ids come from a
// pool. A small type for each library, `Library` below, holds what differs.
//
// After creation nothing allocates but the rehash of Boost's map (a benchmark's) at the same size:
// the map gets its final size from an arena that is then sealed, so a map that would grow refuses
// the insertion, and the table says *full*. A full table checks the next few ids after those that
// it checked last time, and evicts the least worthy of them, if it is worth less than the newcomer.
//
// Invariants (check_invariants quotes them):
//  1. The map holds as many entries as there are live ids.
//  2. The map finds each live id under the key in the id's record.
//  3. The invariants of `IdPool`.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "conntrack/table/id_pool.h"
#include "conntrack/table/page_allocator.h"
#include "millrace/detail/prefetch.h"
#include "millrace/table.h"

namespace millrace {

/// A key and the hash that the caller computed, so that the library does not hash the key again.
template <class K>
struct HashedKey {
  const K& key;
  Hash hash;
  // Implicit, as libraries compare their keys with a HashedKey, and make keys from one.
  operator const K&() const { return key; }  // NOLINT(google-explicit-constructor)
};

/// Hashes the keys that a library passes without their hash: the keys that it moves and, if its
/// insertion takes no `HashedKey`, the newcomer. The newcomer's hash is announced before.
template <class K>
struct HashSource {
  explicit HashSource(const Secret& secret)
      : hasher(secret), announced(), announced_hash(hasher(announced)) {}

  void announce(const HashedKey<K>& newcomer) {
    announced = newcomer.key;
    announced_hash = newcomer.hash;
  }
  Hash operator()(const K& key) const { return key == announced ? announced_hash : hasher(key); }

  Hasher hasher;
  K announced;
  Hash announced_hash;
};

/// The hash function that libraries get.
template <class K>
struct LibraryHash {
  using is_transparent = void;
  using is_avalanching = void;
  std::size_t operator()(const HashedKey<K>& key) const { return key.hash; }
  std::size_t operator()(const K& key) const { return (*source)(key); }

  const HashSource<K>* source;
};

/// The comparison that libraries get; a HashedKey converts to its key.
template <class K>
struct LibraryEqual {
  using is_transparent = void;
  bool operator()(const K& a, const K& b) const { return a == b; }
};

/// A library's map, as the adaptor needs it. The constructor may throw. `insert` may throw if the
/// map is unchanged then: a map that does not survive a refused allocation must never ask for one.
/// `source` and the arena must outlive the map.
template <class L, class K>
concept Library = std::is_nothrow_move_constructible_v<L> &&
                  requires(L map, const L view, std::size_t entries, HashSource<K>* source,
                           PageArena* arena, const HashedKey<K>& key, ConnId id, Hash hash) {
                    { L::kName } -> std::convertible_to<std::string_view>;
                    { L::kSummary } -> std::convertible_to<std::string_view>;
                    { L::kMaxLoad } -> std::convertible_to<double>;
                    /// Returns the largest number of nodes that a map of `entries` may use.
                    { L::nodes(entries) } -> std::same_as<std::size_t>;
                    /// Returns the size in bytes up to which arrays may be allocated later.
                    { L::limit(*arena) } -> std::same_as<std::size_t>;
                    /// Makes a map for `entries` entries, among them `kDrainingRoom` for draining
                    /// ids.
                    L(entries, source, arena);
                    { view.prefetch(hash) } -> std::same_as<void>;
                    { view.find(key) } -> std::same_as<ConnId>;
                    /// Inserts an id under a key. Returns the id that now stands there: `id`, or an
                    /// id that stood there before.
                    { map.insert(key, id) } -> std::same_as<ConnId>;
                    /// Erases a key. Returns the id that stood under it, or none.
                    { map.erase(key) } -> std::same_as<ConnId>;
                    { view.size() } -> std::same_as<std::size_t>;
                    { view.slots() } -> std::same_as<std::size_t>;
                  };

/// Returns the smallest number of slots, a power of two, with which `entries` entries are a load of
/// at most `utmost`, and `entries` less `kDrainingRoom` a load of at most `max_load`.
inline std::size_t power_of_two_slots(std::size_t entries, double max_load, double utmost) {
  const double promised = static_cast<double>(entries - kDrainingRoom) / max_load;
  const double all = static_cast<double>(entries) / utmost;
  return std::bit_ceil(static_cast<std::size_t>(std::ceil(std::max(promised, all))));
}

/// The common part of the libraries' maps.
template <class K, class Map>
class MapLibrary {
 public:
  static std::size_t nodes(std::size_t) { return 0; }
  static std::size_t limit(const PageArena&) { return 0; }

  ConnId find(const HashedKey<K>& key) const { return id_at(map_, at(map_, key)); }
  ConnId insert(const HashedKey<K>& key, ConnId id) {
    source_->announce(key);
    return map_.try_emplace(key.key, id).first->second;
  }
  ConnId erase(const HashedKey<K>& key) {
    auto there = at(map_, key);
    const ConnId id = id_at(map_, there);
    if (id != ConnId::none) map_.erase(there);
    return id;
  }
  std::size_t size() const { return map_.size(); }
  std::size_t slots() const { return map_.bucket_count(); }

 protected:
  template <class... Arguments>
  explicit MapLibrary(HashSource<K>* source, Arguments&&... arguments)
      : source_(source), map_(std::forward<Arguments>(arguments)...) {}

  HashSource<K>* source_;
  Map map_;

 private:
  template <class M>
  static auto at(M& map, const HashedKey<K>& key) {
    if constexpr (requires { map.find(key.key, key.hash); })
      return map.find(key.key, key.hash);
    else
      return map.find(key);
  }
  template <class M, class Iterator>
  static ConnId id_at(M& map, Iterator there) {
    return there == map.end() ? ConnId::none : there->second;
  }
};

/// The bucket array of a map, for prefetching, if the low bits of the hash pick the bucket. The
/// library does not show its array: the allocator knows its address, and the documented growth
/// policy says which bits pick the bucket.
class BucketArray {
 public:
  explicit BucketArray(const PageArena::Array& array, std::size_t buckets)
      : data_(array.data), bucket_bytes_(array.element_bytes), mask_(buckets - 1) {}

  void prefetch(Hash hash) const { detail::prefetch(data_ + (hash & mask_) * bucket_bytes_); }

 private:
  const std::byte* data_;
  std::size_t bucket_bytes_;
  std::size_t mask_;
};

/// The table.
template <class K, Library<K> L>
class LibraryMap {
 public:
  static constexpr std::string_view kName = L::kName;
  static constexpr std::string_view kSummary = L::kSummary;
  static constexpr double kMaxLoad = L::kMaxLoad;
  static constexpr bool kKeyInRecord = false;
  static constexpr bool kHoldsHeadroom = true;  // see TableConfig::headroom

  /// Makes an empty table. Errors: a capacity with its headroom above 4,290,000,000, or a setting
  /// out of its range (usage); no memory (failed).
  static Result<LibraryMap> create(const TableConfig& config);

  LibraryMap(LibraryMap&&) noexcept = default;
  // The old map returns its memory to the old arena, so the old arena must outlive the old map.
  LibraryMap& operator=(LibraryMap&& other) noexcept {
    if (this != &other) {
      std::destroy_at(this);
      std::construct_at(this, std::move(other));
    }
    return *this;
  }
  ~LibraryMap() = default;

  const Hasher& hasher() const { return base_->source.hasher; }

  void prefetch(std::span<const Hash> hashes) const {
    for (const Hash hash : hashes) map_.prefetch(hash);
  }
  /// Does nothing: the map has the keys, and `find` reads no record.
  Stragglers prefetch_records(std::span<const K>, std::span<const Hash>) const { return {}; }
  void prefetch_stragglers(std::span<const K>, std::span<const Hash>, Stragglers) const {}

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids,
            Stragglers = {}) const {
    for (std::size_t i = 0; i < keys.size(); ++i)
      ids[i] = map_.find(HashedKey<K>{keys[i], hashes[i]});
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth);

  ConnId erase(const K& key, Hash hash) {
    const ConnId id = map_.erase(HashedKey<K>{key, hash});
    if (id != ConnId::none) ids_.give_back(id);
    return id;
  }

  void release(ConnId id) { ids_.release(id); }

  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return ids_.walk(cursor, about, visit);
  }

  const Records<K>& records() const { return records_; }
  std::size_t size() const { return ids_.live(); }
  std::size_t capacity() const { return capacity_; }
  std::size_t slots() const { return map_.slots(); }
  std::size_t memory_bytes() const {
    return base_->arena.bytes() + ids_.memory_bytes() + records_.memory_bytes();
  }
  Pages pages() const { return std::max({base_->arena.pages(), ids_.pages(), records_.pages()}); }
  Result<void> check_invariants() const;

 private:
  /// The objects that the map points to, at addresses that do not change.
  struct Base {
    PageArena arena;
    HashSource<K> source;
  };
  static constexpr std::size_t kSample = 8;

  /// Throws if there is no memory for the map.
  LibraryMap(const TableConfig& config, Records<K> records, IdPool ids)
      : base_(new Base{PageArena(config.pages, L::nodes(records.count())),
                       HashSource<K>(config.secret)}),
        map_(records.count(), &base_->source, &base_->arena),
        records_(std::move(records)),
        ids_(std::move(ids)),
        capacity_(config.capacity) {
    base_->arena.seal(L::limit(base_->arena));
  }

  /// Inserts a key. Returns the id under that key, which is `id` if the key is new, or none if the
  /// map refuses the key.
  ConnId place(const HashedKey<K>& key, ConnId id) {
    try {
      return map_.insert(key, id);
    } catch (const std::exception&) {
      return ConnId::none;
    }
  }

  template <WorthFunction W>
  Insertion insert_into_full(const HashedKey<K>& key, const W& worth);
  template <WorthFunction W>
  ConnId least_worthy(const W& worth);

  std::unique_ptr<Base> base_;
  L map_;
  Records<K> records_;
  IdPool ids_;
  std::size_t capacity_ = 0;
  Cursor hand_ = Cursor::begin;  // where the next search for an entry to evict begins
};

template <class K, Library<K> L>
Result<LibraryMap<K, L>> LibraryMap<K, L>::create(const TableConfig& config) {
  const auto wanted = entries_wanted(config, 4'290'000'000);
  if (!wanted) return std::unexpected(wanted.error());
  const std::size_t entries = *wanted + kDrainingRoom;
  auto records = Records<K>::create(entries, config.state_bytes, config.pages);
  if (!records) return std::unexpected(records.error());
  auto ids = IdPool::create(entries, config.pages);
  if (!ids) return std::unexpected(ids.error());
  try {
    return LibraryMap(config, std::move(*records), std::move(*ids));
  } catch (const std::exception&) {
    return std::unexpected(Error{"no memory for the index of " + std::to_string(entries) +
                                 " entries: lower the capacity or free memory"});
  }
}

template <class K, Library<K> L>
template <WorthFunction W>
Insertion LibraryMap<K, L>::insert(const K& key, Hash hash, const W& worth) {
  const HashedKey<K> hashed{key, hash};
  const ConnId id = ids_.take();
  if (id == ConnId::none) return insert_into_full(hashed, worth);
  const ConnId there = place(hashed, id);
  if (there != id) {
    ids_.put_back(id);
    return there == ConnId::none ? Insertion{} : Insertion::met(there, worth(there) != 0);
  }
  records_.header(id).key = key;
  records_.prefetch(ids_.upcoming());
  return {id, Insertion::Outcome::inserted, ConnId::none};
}

template <class K, Library<K> L>
template <WorthFunction W>
Insertion LibraryMap<K, L>::insert_into_full(const HashedKey<K>& key, const W& worth) {
  if (const ConnId there = map_.find(key); there != ConnId::none)
    return Insertion::met(there, worth(there) != 0);
  if constexpr (std::is_same_v<W, KeepAll>) return {};
  const ConnId id = least_worthy(worth);
  if (id == ConnId::none) return {};
  const K old = records_.header(id).key;
  // Adds the newcomer before it erases the old entry, so that no entry is lost if the map refuses
  // the newcomer.
  if (place(key, id) == ConnId::none) return {};
  map_.erase(HashedKey<K>{old, hasher()(old)});
  records_.header(id).key = key.key;
  return {id, Insertion::Outcome::inserted, id};
}

template <class K, Library<K> L>
template <WorthFunction W>
ConnId LibraryMap<K, L>::least_worthy(const W& worth) {
  Victim victim(worth, ConnId::none);
  std::size_t seen = 0;
  const auto consider = [&](ConnId id) {
    ++seen;
    victim.consider(id, id);
  };
  hand_ = ids_.walk(hand_, kSample, consider);
  if (hand_ == Cursor::end) hand_ = ids_.walk(Cursor::begin, kSample - seen, consider);
  return victim.place();
}

template <class K, Library<K> L>
Result<void> LibraryMap<K, L>::check_invariants() const {
  const auto broken = [](std::string what) {
    return std::unexpected(Error{std::string(kName) + ": " + std::move(what)});
  };
  if (const auto ok = ids_.check_invariants(); !ok) return broken(ok.error().message);
  if (map_.size() != ids_.live())
    return broken("1: the map does not have as many entries as there are live ids");
  bool found = true;
  ids_.walk(Cursor::begin, SIZE_MAX, [&](ConnId id) {
    const K& key = records_.header(id).key;
    found = found && map_.find(HashedKey<K>{key, hasher()(key)}) == id;
  });
  if (!found) return broken("2: the map does not find an entry under its record's key");
  return {};
}

}  // namespace millrace
