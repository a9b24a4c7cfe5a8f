// A table as a contender in a benchmark: the operations that are timed, each over a whole stream of
// keys, in bursts, as in a worker.
//
// All contenders get the same keys and the same hash, ask for the same kind of pages, and have the
// same pipeline with three bursts in flight: two are prefetched while the third is served, and the
// pipeline does not drain between bursts. If `find` compares keys in records, the records are
// prefetched before `find`, otherwise after it, for the update. Bursts of 1 have no pipeline: hash,
// find, update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/table.h"

namespace millrace::bench {

/// The mix of operations of a connection table in use. Keys of a burst of lookups that are not
/// found are inserted; as many keys of `leaving` are erased during the next burst.
template <class K>
struct Mix {
  std::vector<K> lookups;
  std::vector<K> leaving;
  /// Number of keys of `leaving` that are to be erased for the first kStep, 2 * kStep, ... lookups.
  std::vector<std::uint32_t> left_after;
  static constexpr unsigned kStep = 16;
};

template <class K>
class Contender {
 public:
  static constexpr unsigned kBurstMax = 64;

  virtual ~Contender() = default;
  virtual std::size_t size() const = 0;
  virtual std::size_t index_bytes() const = 0;   ///< everything except the records
  virtual std::size_t record_bytes() const = 0;  ///< 64 a record
  virtual Pages pages() const = 0;
  virtual Result<void> check_invariants() const = 0;

  /// Finds each key's id. Returns how many were found.
  virtual std::size_t find(std::span<const K> keys, unsigned burst) = 0;
  /// Finds each key's connection and updates its record. Returns how many were found.
  virtual std::size_t touch(std::span<const K> keys, unsigned burst) = 0;
  /// Inserts the keys. Returns how many were inserted: the other keys were present, or found no
  /// room.
  virtual std::size_t insert(std::span<const K> keys, unsigned burst) = 0;
  /// Erases the keys. Returns how many were erased.
  virtual std::size_t erase(std::span<const K> keys, unsigned burst) = 0;
  /// Erases a burst of 32 keys of `leaving` and inserts one of `coming`, in turn; both spans have
  /// the same length. Returns the number of live keys, computed from the results of the table's
  /// operations.
  virtual std::size_t churn(std::span<const K> leaving, std::span<const K> coming) = 0;
  /// Runs the mix. Returns how many keys were touched and how many inserted.
  virtual std::pair<std::size_t, std::size_t> mix(const Mix<K>& mix) = 0;
  /// Inserts the keys `coming` one by one; before each insertion erases a key of `leaving`,
  /// untimed. Returns the nanoseconds of each insertion, without the cost of reading the clock.
  virtual std::vector<float> insertion_ns(std::span<const K> coming,
                                          std::span<const K> leaving) = 0;
  /// Returns the ids of the keys, in the order of the keys; `ConnId::none` for a key that is not
  /// found.
  virtual std::vector<ConnId> ids(std::span<const K> keys) = 0;
  /// Returns the key in the id's record.
  virtual const K& key(ConnId id) const = 0;
};

/// A table that takes part in benchmarks.
struct Entrant {
  std::string_view name;
  double max_load = 0;
  bool key_in_record = false;
  template <class K>
  using Make = std::function<Result<std::unique_ptr<Contender<K>>>(const TableConfig&)>;
  Make<KeyV4> v4;
  Make<KeyV6> v6;

  template <class K>
  const Make<K>& make() const {
    if constexpr (sizeof(K) == sizeof(KeyV4)) {
      return v4;
    } else {
      return v6;
    }
  }
};

/// Returns all tables, variants and peers, in the order of `AllContenders`.
const std::vector<Entrant>& entrants();

/// Bytes of state with which a record fits one cache line, together with its header and the four
/// bytes of a table's own link.
template <class K>
constexpr std::size_t kStateBytes = 60 - sizeof(RecordHeader<K>);

/// Returns key `n` of a set of 2^48 distinct keys.
template <class K>
K key_number(std::uint64_t n) {
  // Multiplication by an odd factor permutes the 48-bit numbers.
  const std::uint64_t bits = n * 0x9e3779b97f4a7c15;
  K key;
  for (unsigned i = 0; i < 4; ++i) {
    key.source.bytes[i] = static_cast<std::uint8_t>(bits >> 8 * i);
    key.destination.bytes[i] = static_cast<std::uint8_t>(0xcb >> i);
  }
  key.source_port = static_cast<std::uint16_t>(bits >> 32);
  key.destination_port = 443;
  key.protocol = 6;
  return key;
}

}  // namespace millrace::bench
