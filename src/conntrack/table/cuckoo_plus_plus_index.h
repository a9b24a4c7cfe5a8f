// The buckets of `cuckoo++`: which two are a key's, and what the first knows of the second.
//
// A key has two buckets: its home, picked by its hash, and that home XOR a number made from its
// tag. So an entry moves to its other bucket without anyone reading its key. Each bucket keeps
// a Bloom filter of the entries that it is the home of and that stand in their other bucket; the
// filter spares nearly all lookups the other bucket, hits and misses alike.
//
//      0           16         48       56      57     58       59       64
//      +-----------+----------+--------+-------+------+--------+--------+
//      | 8 tags    | 8 ids    | filter | moved | away | unseen | unused |
//      +-----------+----------+--------+-------+------+--------+--------+
//      with timers:             filter: 48-52, moved 52, away 53, unseen 54, 8 stamps 56-64
//
//      filter: two bits an entry, from its tag      away:   slots whose entry's home is elsewhere
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

/// Coarse time of the built-in timers, in a unit of the caller's choice, wrapping.
using CuckooStamp = std::uint8_t;

inline namespace MILLRACE_ISA {

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

/// What has expired: `now` is `timeout` or more past its stamp. By default nothing: no age is 256.
struct CuckooClock {
  CuckooStamp now = 0;
  unsigned timeout = 256;
};

/// An entry comes by `occupy` or `copy` and leaves by `vacate`; these keep filters and counts.
template <class K, bool kTimers>
class CuckooPlusPlusIndex : public CuckooIndex<K, CuckooPlusPlusOwn<kTimers>> {
 public:
  using Own = CuckooPlusPlusOwn<kTimers>;
  using Base = CuckooIndex<K, Own>;
  using Tag = CuckooTag;
  using Place = CuckooPlace;
  using Base::bucket, Base::first_of, Base::look, Base::tag_for;

  static Result<CuckooPlusPlusIndex> create(const TableConfig& config, double max_load) {
    auto base = Base::create(config, max_load);
    if (!base) return std::unexpected(base.error());
    return CuckooPlusPlusIndex(std::move(*base));
  }

  Own& own(std::uint32_t at) const { return bucket(at).own; }

  /// The other bucket of an entry of that tag in bucket `at`.
  std::uint32_t other_of(std::uint32_t at, Tag tag) const {
    return this->across(at, mixed(tag) >> 20);
  }
  bool is_away(Place place) const { return (own(place.bucket).away >> place.slot & 1) != 0; }
  std::uint32_t home_of(Place place) const {
    return is_away(place) ? other_of(place.bucket, this->tag(place)) : place.bucket;
  }
  bool may_be_away(std::uint32_t home, Tag tag) const {
    const auto bits = filter_of(tag);
    return (own(home).filter & bits) == bits;
  }
  /// Its count has room for what may be sent away meanwhile: an insertion looks twice, at a path's
  /// bucket and at its own home, before it sends two away.
  bool can_send(std::uint32_t home) const { return own(home).moved < 254; }

  Place look(const K& key, Hash hash) const {
    const std::uint32_t home = first_of(hash);
    const Tag tag = tag_for(hash);
    const Place place = look(home, tag, key);
    if (place || !may_be_away(home, tag)) [[likely]]
      return place;
    return look(other_of(home, tag), tag, key);
  }
  /// The other bucket, if an entry of that tag may have gone there.
  std::optional<std::uint32_t> away_of(std::uint32_t home, Tag tag) const {
    return may_be_away(home, tag) ? std::optional(other_of(home, tag)) : std::nullopt;
  }

  /// Into a free place of one of the key's buckets.
  void occupy(Place place, std::uint32_t home, Tag tag, ConnId id, CuckooStamp stamp) {
    this->tag(place) = tag;
    this->id(place) = id;
    set_stamp(place, stamp);
    if (place.bucket == home) return;
    own(home).filter |= filter_of(tag);
    ++own(home).moved;
    own(place.bucket).away |= static_cast<std::uint8_t>(1U << place.slot);
  }
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

  // The lower half of the product spreads the tag over buckets of any number, the upper bits choose
  // those of the filter.
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
