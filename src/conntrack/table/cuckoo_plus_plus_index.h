// The buckets of `cuckoo++`, their filters and counts.
//
// A key has two buckets: its home, picked by its hash, and that home XOR a number made from its
// tag. An entry can therefore move to its other bucket without a read of its key. Each bucket has a
// Bloom filter of the entries that have it as their home and stand in their other bucket; the
// filter saves nearly all lookups, hits and misses alike, the read of the other bucket.
//
//      0           16         48       56      57     58       59       64
//      +-----------+----------+--------+-------+------+--------+--------+
//      | 8 tags    | 8 ids    | filter | moved | away | unseen | unused |
//      +-----------+----------+--------+-------+------+--------+--------+
//      with timers:             filter: 48-52, moved 52, away 53, unseen 54, 8 stamps 56-64
//
//      filter: two bits an entry, from its tag      away:   slots of entries with another home
//      moved:  how many entries are in the filter   unseen: see cuckoo_walk.h
//
// With timers each entry has a stamp, the coarse time of its last use. Stamps wrap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "conntrack/table/cuckoo_bucket.h"
#include "millrace/table.h"

namespace millrace {

/// Coarse time of the built-in timers, in a unit of the caller's choice. Wraps after 256 units.
using CuckooStamp = std::uint8_t;

inline namespace MILLRACE_ISA {

/// The part of a bucket that is `cuckoo++`'s own.
template <bool kTimers>
struct CuckooPlusPlusOwn {
  struct NoStamps {};
  using Filter = std::conditional_t<kTimers, std::uint32_t, std::uint64_t>;
  using Stamps = std::conditional_t<kTimers, std::array<CuckooStamp, 8>, NoStamps>;
  static constexpr unsigned kFilterBits = 8 * sizeof(Filter);

  Filter filter = 0;
  std::uint8_t moved = 0;
  std::uint8_t away = 0;
  std::uint8_t unseen = 0;
  [[no_unique_address]] alignas(kTimers ? 8 : 1) Stamps stamps{};
};
static_assert(sizeof(CuckooPlusPlusOwn<false>) == 16 && sizeof(CuckooPlusPlusOwn<true>) == 16);
static_assert(offsetof(CuckooPlusPlusOwn<false>, moved) == 8 &&
              offsetof(CuckooPlusPlusOwn<false>, unseen) == 10);
static_assert(offsetof(CuckooPlusPlusOwn<true>, moved) == 4 &&
              offsetof(CuckooPlusPlusOwn<true>, stamps) == 8);

/// The time and the timeout for a check: an entry has expired if `now` is `timeout` or more past
/// its stamp. By default no entry has expired, as every age is below 256.
struct CuckooClock {
  CuckooStamp now = 0;
  unsigned timeout = 256;
};

/// The index. `occupy`, `copy` and `vacate` add and remove entries, and keep filters and counts
/// right.
template <class K, bool kTimers>
class CuckooPlusPlusIndex : public CuckooIndex<K, CuckooPlusPlusOwn<kTimers>> {
 public:
  using Own = CuckooPlusPlusOwn<kTimers>;
  using Base = CuckooIndex<K, Own>;
  using Tag = CuckooTag;
  using Place = CuckooPlace;
  using Base::bucket, Base::first_of, Base::probe, Base::tag_for;

  static Result<CuckooPlusPlusIndex> create(const TableConfig& config, double max_load) {
    auto base = Base::create(config, max_load);
    if (!base) return std::unexpected(base.error());
    return CuckooPlusPlusIndex(std::move(*base));
  }

  Own& own(std::uint32_t at) const { return bucket(at).own; }

  /// Returns the other bucket of an entry with that tag in bucket `at`.
  std::uint32_t other_of(std::uint32_t at, Tag tag) const {
    return this->across(at, mixed(tag) >> 20);
  }
  bool is_away(Place place) const { return (own(place.bucket).away >> place.slot & 1) != 0; }
  std::uint32_t home_of(Place place) const {
    return is_away(place) ? other_of(place.bucket, this->tag(place)) : place.bucket;
  }
  /// True if the filter says that an entry with that home and tag may be in its other bucket.
  bool may_be_away(std::uint32_t home, Tag tag) const {
    const auto bits = filter_of(tag);
    return (own(home).filter & bits) == bits;
  }
  /// True if the bucket may send an entry away. `moved` can hold one more than the limit of 254: an
  /// insertion may check the same bucket twice, as a bucket on its path and as the newcomer's home,
  /// before it sends both entries away.
  bool can_send(std::uint32_t home) const { return own(home).moved < 254; }

  Place probe(const K& key, Hash hash) const {
    const std::uint32_t home = first_of(hash);
    const Tag tag = tag_for(hash);
    const Place place = probe(home, tag, key);
    if (place || !may_be_away(home, tag)) [[likely]]
      return place;
    return probe(other_of(home, tag), tag, key);
  }
  /// Returns the other bucket, if an entry with that tag may be there.
  std::optional<std::uint32_t> away_of(std::uint32_t home, Tag tag) const {
    return may_be_away(home, tag) ? std::optional(other_of(home, tag)) : std::nullopt;
  }

  /// Puts an entry into a free slot of one of the key's buckets.
  void occupy(Place place, std::uint32_t home, Tag tag, ConnId id, CuckooStamp stamp) {
    this->tag(place) = tag;
    this->id(place) = id;
    set_stamp(place, stamp);
    if (place.bucket == home) return;
    own(home).filter |= filter_of(tag);
    ++own(home).moved;
    own(place.bucket).away |= static_cast<std::uint8_t>(1U << place.slot);
  }
  /// Copies an entry to a free slot of its other bucket.
  void copy(Place from, Place to) {
    occupy(to, home_of(from), this->tag(from), this->id(from), stamp(from));
  }
  void vacate(Place place) {
    if (is_away(place)) {
      Own& home = own(home_of(place));
      if (--home.moved == 0) home.filter = 0;
      own(place.bucket).away &= static_cast<std::uint8_t>(~(1U << place.slot));
    }
    this->tag(place) = 0;
  }

  void set_stamp(Place place, CuckooStamp stamp) {
    if constexpr (kTimers) own(place.bucket).stamps[place.slot] = stamp;
  }
  bool has_expired(Place place, CuckooClock clock) const {
    return kTimers && static_cast<CuckooStamp>(clock.now - stamp(place)) >= clock.timeout;
  }

 private:
  explicit CuckooPlusPlusIndex(Base base) : Base(std::move(base)) {}

  CuckooStamp stamp(Place place) const {
    if constexpr (kTimers)
      return own(place.bucket).stamps[place.slot];
    else
      return 0;
  }

  // Bits 20 and up of the product choose the other bucket; bits 52 and up choose the two bits in
  // the filter.
  static std::uint64_t mixed(Tag tag) { return tag * 0x9e3779b97f4a7c15; }
  static auto filter_of(Tag tag) {
    const auto bit = [](std::uint64_t n) {
      return typename Own::Filter{1} << n % Own::kFilterBits;
    };
    const std::uint64_t bits = mixed(tag) >> 52;
    return bit(bits) | bit(bits >> 6);
  }
};

}  // namespace MILLRACE_ISA
}  // namespace millrace
