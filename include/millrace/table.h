// The contract of a connection table: what every table promises, and nothing about how.
//
// A table maps keys to connection ids and owns the records behind them. One thread at a time uses
// an instance, unless its sharing scheme says otherwise.
//
// - `prefetch`, `prefetch_records`, `prefetch_stragglers` and `find` form a pipeline for a burst of
//   at most 64 keys (Stragglers::kMax): each begins to fetch what the next one reads. All but
//   `find` are hints; it is right without them. `hashes` has as many elements as `keys`, `ids` as
//   many or more.
// - An id stays valid for the life of its entry. An erased entry's id is *draining*: neither found
//   nor given out again until `release`, so that whoever found it in this burst may still read its
//   record.
// - `insert` may displace an entry whose worth is below the newcomer's. Its id may then be given to
//   the newcomer at once: keep ids that are still in use alive by their worth. Of the record,
//   insert writes only the key; the rest is the displaced entry's until the caller overwrites it.
// - `release` is called once for each id that drains, and for no other.
//
// Debug builds check lengths in `find`, the ids of records, and `release`, in `race`
// (detail/check.h says how).
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
  std::size_t capacity = 0;     ///< entries promised, 1 or more
  std::size_t state_bytes = 0;  ///< function's state in each record
  Pages pages = Pages::huge;    ///< best kind of memory to try
  Secret secret;                ///< of the hash
  /// Room beyond the capacity, as a share of it from 0 to 1, in tables that can hold more than they
  /// promise: those that grow or chain, which say so by `kHoldsHeadroom`.
  double headroom = 0;
};

/// Ids beyond those promised, as many as a burst may open: with them a table of one worker keeps
/// its promise while any number of others drain.
constexpr std::size_t kDrainingRoom = Stragglers::kMax;

/// Entries to make room for, at most `most`: the capacity and its headroom. Errors (usage): a
/// capacity or a headroom out of its range.
inline Result<std::size_t> entries_wanted(const TableConfig& config, std::size_t most) {
  const bool is_share = config.headroom >= 0 && config.headroom <= 1;  // false for NaN
  if (!is_share) {
    return std::unexpected(Error{"the headroom of a table is from 0 to 1 of its capacity, not " +
                                     std::to_string(config.headroom),
                                 Error::Kind::usage});
  }
  const double wanted = std::ceil(static_cast<double>(config.capacity) * (1 + config.headroom));
  if (config.capacity == 0 || wanted > static_cast<double>(most)) {
    return std::unexpected(Error{"the capacity of a table, its headroom included, is from 1 to " +
                                     std::to_string(most) + ", not " +
                                     std::to_string(config.capacity),
                                 Error::Kind::usage});
  }
  return static_cast<std::size_t>(wanted);
}

struct Insertion {
  enum class Outcome : std::uint8_t {
    inserted,
    present,  ///< the key was there already: `id` is its entry
    full,     ///< no place and nothing worth less: `id` is none
  };
  ConnId id = ConnId::none;
  Outcome outcome = Outcome::full;
  /// The entry that gave way: the same id, or one that is draining now.
  ConnId displaced = ConnId::none;

  /// The answer where the key is there already: a dead entry gives way in its own place.
  static constexpr Insertion met(ConnId entry, bool alive) {
    if (alive) return {entry, Outcome::present, ConnId::none};
    return {entry, Outcome::inserted, entry};
  }
};

/// Where a walk stands. A walk starts at `begin` and is over at `end`.
enum class Cursor : std::uint64_t { begin = 0, end = UINT64_MAX };

/// `worth(id)` of a live entry: 0 is dead, higher is missed more. `worth(ConnId::none)` is the
/// newcomer's. One that has `least(id)` is told of each entry that is the least worthy so far: the
/// last, if any, gives way, and its key may be the newcomer's when `insert` returns.
template <class W>
concept WorthFunction = requires(const W worth, ConnId id) {
  { worth(id) } -> std::same_as<std::uint8_t>;
};

/// Everything is worth the same: an insertion displaces nothing.
struct KeepAll {
  std::uint8_t operator()(ConnId) const { return 1; }
};

/// The least worthy of the entries considered, if it is worth less than the newcomer; `Place` says
/// where it stands.
template <WorthFunction W, class Place>
class Victim {
 public:
  /// `nowhere` is its place while there is none.
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

/// As `prefetch_records`, where keys that are not found will be inserted: begins to fetch what that
/// writes, too, in tables that can tell.
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
      /// The load, `size() / slots()`, up to which it keeps what it promises.
      { T::kMaxLoad } -> std::convertible_to<double>;
      /// True where `find` compares keys in records, so that it pays to prefetch them.
      { T::kKeyInRecord } -> std::convertible_to<bool>;
      { T::create(TableConfig{}) } -> std::same_as<Result<T>>;
      /// Every hash given to this table is this hasher's.
      { view.hasher() } -> std::same_as<const Hasher&>;
      { view.prefetch(hashes) } -> std::same_as<void>;
      /// Which keys are to be looked for further on.
      { view.prefetch_records(keys, hashes) } -> std::same_as<Stragglers>;
      { view.prefetch_stragglers(keys, hashes, stragglers) } -> std::same_as<void>;
      /// `ids[i]` becomes the entry of `keys[i]`, or none.
      { view.find(keys, hashes, ids) } -> std::same_as<void>;
      { view.find(keys, hashes, ids, stragglers) } -> std::same_as<void>;
      { table.insert(key, hash, worth) } -> std::same_as<Insertion>;
      /// The id that was freed and is now draining, or none.
      { table.erase(key, hash) } -> std::same_as<ConnId>;
      /// A draining id, which is not none, may be given out again: nobody uses its record any more.
      { table.release(id) } -> std::same_as<void>;
      /// Visits about that many entries from the cursor on, and says where to go on. Every entry
      /// that lives through the whole walk is visited at least once, whatever else is inserted or
      /// erased meanwhile; an entry may be visited twice.
      { view.walk(cursor, std::size_t{64}, visit) } -> std::same_as<Cursor>;
      { view.records() } -> std::same_as<const Records<K>&>;
      /// Live entries; draining ones do not count.
      { view.size() } -> std::same_as<std::size_t>;
      /// Entries promised at creation.
      { view.capacity() } -> std::same_as<std::size_t>;
      /// Places of the index, `capacity()` or more, of which its load is a share. Ids, and so live
      /// entries, are bounded by `records().count()`, which may be more or less.
      { view.slots() } -> std::same_as<std::size_t>;
      /// Index and records together.
      { view.memory_bytes() } -> std::same_as<std::size_t>;
      /// The worst kind among its memories.
      { view.pages() } -> std::same_as<Pages>;
      /// Reads the whole structure; the error names the first rule that is broken.
      { view.check_invariants() } -> std::same_as<Result<void>>;
    };

}  // namespace millrace
