// The contract of a connection table: what every table promises, and nothing about how.
//
// A table maps keys to connection ids and owns the records behind the ids. Only one thread at a
// time may use an instance, unless its sharing scheme says otherwise.
//
// 1. `prefetch`, `prefetch_records`, `prefetch_stragglers` and `find` form a pipeline for a burst
//    of at most 64 keys (Stragglers::kMax): each stage before `find` prefetches what the next stage
//    reads. All stages but `find` are hints; `find` is right without them. `hashes` must have as
//    many elements as `keys`, `ids` at least as many.
// 2. An id stays valid for the life of its entry. The id of an erased entry is *draining*: it is
//    neither found nor given out again until `release`, so that the caller can still read the
//    record of an entry that it found earlier in its burst.
// 3. `insert` may evict an entry with a worth below the newcomer's. The newcomer may get the
//    evicted entry's id at once, so an entry that the burst still uses needs a high worth. `insert`
//    writes only the key of a record; the rest of the record is what a former entry left there,
//    until the caller overwrites it.
// 4. The caller must call `release` once for each draining id, and for no other id.
//
// Debug builds check the lengths in `find` and the ids in `release` for `race`, and the ids of
// records for all tables (detail/check.h).
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/record.h"
#include "millrace/stragglers.h"
#include "millrace/types.h"

namespace millrace {

struct TableConfig {
  std::size_t capacity = 0;     ///< entries that the table promises to hold, 1 or more
  std::size_t state_bytes = 0;  ///< size of the function's state in each record
  Pages pages = Pages::huge;    ///< best kind of pages to try
  Secret secret;                ///< secret of the hash
  /// Room beyond the capacity, as a share of the capacity from 0 to 1. Tables with `kHoldsHeadroom`
  /// (chained ones, and the maps of libraries) hold all of it; other tables hold as much of it as
  /// their index has slots for.
  double headroom = 0;
};

/// Ids beyond the capacity, as many as a burst may open. With this room a table of one worker holds
/// its capacity while ids drain.
constexpr std::size_t kDrainingRoom = Stragglers::kMax;

/// Returns the number of entries to make room for: the capacity and its headroom, together from 1
/// to `most`. Errors (usage): a capacity or a headroom out of its range.
inline Result<std::size_t> entries_wanted(const TableConfig& config, std::size_t most) {
  const bool is_share = config.headroom >= 0 && config.headroom <= 1;  // false for NaN
  if (!is_share) {
    return std::unexpected(Error{"a table's headroom must be from 0 to 1 of its capacity, not " +
                                     std::to_string(config.headroom),
                                 Error::Kind::usage});
  }
  const double wanted = std::ceil(static_cast<double>(config.capacity) * (1 + config.headroom));
  if (config.capacity == 0 || wanted > static_cast<double>(most)) {
    return std::unexpected(Error{"the capacity of a table, with its headroom, must be from 1 to " +
                                     std::to_string(most) + ", not " +
                                     std::to_string(config.capacity),
                                 Error::Kind::usage});
  }
  return static_cast<std::size_t>(wanted);
}

/// The result of an insertion.
struct Insertion {
  enum class Outcome : std::uint8_t {
    inserted,
    present,  ///< the key has an entry already: `id` is that entry
    full,     ///< there is no free slot and no entry worth less: `id` is none
  };
  ConnId id = ConnId::none;
  Outcome outcome = Outcome::full;
  /// The evicted entry, or none: equal to `id`, or an id that is draining now.
  ConnId displaced = ConnId::none;

  /// Returns the result of inserting a key that has an entry already. If that entry is dead (not
  /// `alive`), it is replaced in place and reported as displaced.
  static constexpr Insertion met(ConnId entry, bool alive) {
    if (alive) return {entry, Outcome::present, ConnId::none};
    return {entry, Outcome::inserted, entry};
  }
};

/// The position of a walk. A walk starts at `begin` and is over at `end`.
enum class Cursor : std::uint64_t { begin = 0, end = UINT64_MAX };

/// A function that rates entries for eviction. `worth(id)` is 0 for a dead (expired) entry. Of the
/// entries that a full table considers, the one with the lowest worth is evicted, if it is worth
/// less than the newcomer. `worth(ConnId::none)` is the newcomer's worth. If the function has a
/// member `least(id)`, the table calls it for each entry that is the least worthy so far, while the
/// entry's key can still be read: the last of these entries is evicted, and `insert` may overwrite
/// that entry's key.
template <class W>
concept WorthFunction = requires(const W worth, ConnId id) {
  { worth(id) } -> std::same_as<std::uint8_t>;
};

/// Rates all entries alike, so that an insertion evicts nothing.
struct KeepAll {
  std::uint8_t operator()(ConnId) const { return 1; }
};

/// Finds the entry to evict: the least worthy of those considered, if it is worth less than the
/// newcomer. `Place` is the table's type for the position of an entry.
template <WorthFunction W, class Place>
class Victim {
 public:
  /// `nowhere` is the result while no entry is worth less than the newcomer.
  Victim(const W& worth, Place nowhere)
      : worth_(worth), least_(worth(ConnId::none)), place_(nowhere) {}

  void consider(ConnId id, const Place& place) {
    const std::uint8_t worth = worth_(id);
    if (worth >= least_) return;
    least_ = worth;
    place_ = place;
    if constexpr (requires { worth_.least(id); }) worth_.least(id);
  }
  const Place& place() const { return place_; }

 private:
  const W& worth_;
  std::uint8_t least_;
  Place place_;
};

/// Calls `prefetch_records` for keys that will be inserted if they are not found: tables that have
/// `prefetch_to_open` also prefetch what the insertion writes.
template <class T, class K>
Stragglers prefetch_to_open(const T& table, std::span<const K> keys, std::span<const Hash> hashes) {
  if constexpr (requires { table.prefetch_to_open(keys, hashes); }) {
    return table.prefetch_to_open(keys, hashes);
  } else {
    return table.prefetch_records(keys, hashes);
  }
}

template <class T, class K>
concept ConnectionTable =
    requires(T table, const T view, std::span<const K> keys, std::span<const Hash> hashes,
             std::span<ConnId> ids, Stragglers stragglers, const K& key, Hash hash, KeepAll worth,
             Cursor cursor, ConnId id, void (*visit)(ConnId)) {
      { T::kName } -> std::convertible_to<std::string_view>;
      /// The load, `size() / slots()`, up to which the table keeps its promises.
      { T::kMaxLoad } -> std::convertible_to<double>;
      /// True if `find` compares keys in records, so that prefetching records pays.
      { T::kKeyInRecord } -> std::convertible_to<bool>;
      { T::create(TableConfig{}) } -> std::same_as<Result<T>>;
      /// Returns the hasher that must make every hash passed to this table.
      { view.hasher() } -> std::same_as<const Hasher&>;
      { view.prefetch(hashes) } -> std::same_as<void>;
      /// Returns the keys that seem to need a lookup beyond their first bucket.
      { view.prefetch_records(keys, hashes) } -> std::same_as<Stragglers>;
      { view.prefetch_stragglers(keys, hashes, stragglers) } -> std::same_as<void>;
      /// Sets `ids[i]` to the entry of `keys[i]`, or none.
      { view.find(keys, hashes, ids) } -> std::same_as<void>;
      { view.find(keys, hashes, ids, stragglers) } -> std::same_as<void>;
      { table.insert(key, hash, worth) } -> std::same_as<Insertion>;
      /// Returns the id of the erased entry, which is draining now, or none.
      { table.erase(key, hash) } -> std::same_as<ConnId>;
      /// Makes a draining id reusable. No thread may use its record any more. Not for none.
      { table.release(id) } -> std::same_as<void>;
      /// Visits about as many entries as the second argument says, from the cursor on, and returns
      /// the cursor to go on from. An entry that lives through the whole walk is visited at least
      /// once, and perhaps twice, whatever is inserted or erased meanwhile.
      { view.walk(cursor, std::size_t{64}, visit) } -> std::same_as<Cursor>;
      { view.records() } -> std::same_as<const Records<K>&>;
      /// Returns the number of live entries; draining ids do not count.
      { view.size() } -> std::same_as<std::size_t>;
      /// Returns the entries promised at creation.
      { view.capacity() } -> std::same_as<std::size_t>;
      /// Returns the number of slots of the index, `capacity()` or more. The load is `size() /
      /// slots()`. The number of ids, and so of live entries, is at most `records().count()`, which
      /// may be more or less than `slots()`.
      { view.slots() } -> std::same_as<std::size_t>;
      /// Returns the bytes of index and records together.
      { view.memory_bytes() } -> std::same_as<std::size_t>;
      /// Returns the worst kind of pages among the table's mappings.
      { view.pages() } -> std::same_as<Pages>;
      /// Reads the whole table. Errors (failed): a broken invariant, by number and name.
      { view.check_invariants() } -> std::same_as<Result<void>>;
    };

}  // namespace millrace
