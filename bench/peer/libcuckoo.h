// `libcuckoo`: libcuckoo::cuckoohash_map as a connection table, for comparison only.
//
// Each key has two buckets of four entries, with one byte of hash an entry. The map is made for
// many threads; here one thread holds all locks permanently (`lock_table`), so that operations take
// no lock.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

// NOLINTNEXTLINE(bugprone-macro-parentheses): a header's name
#define MILLRACE_LIBRARY <libcuckoo/cuckoohash_map.hh>
#include "conntrack/table/without_assertions.inc"

namespace millrace {

template <class K>
using LibcuckooMap = libcuckoo::cuckoohash_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>,
                                               PageAllocator<std::pair<const K, ConnId>>>;

/// Owns the map. A base class, so that the map outlives the locks that the class below holds.
template <class K>
struct LibcuckooOwner {
  std::unique_ptr<LibcuckooMap<K>> map;
};

template <class K>
class LibcuckooLibrary : LibcuckooOwner<K>,
                         public MapLibrary<K, typename LibcuckooMap<K>::locked_table> {
  using Locked = MapLibrary<K, typename LibcuckooMap<K>::locked_table>;
  using Locked::map_;

 public:
  static constexpr std::string_view kName = "libcuckoo";
  static constexpr std::string_view kSummary =
      "libcuckoo::cuckoohash_map, all locks held: two buckets of four entries";
  static constexpr double kMaxLoad = 0.93;

  LibcuckooLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : LibcuckooOwner<K>{std::make_unique<LibcuckooMap<K>>(
            power_of_two_slots(entries, kMaxLoad, kUtmostLoad), LibraryHash<K>{source},
            LibraryEqual<K>{}, PageAllocator<std::pair<const K, ConnId>>(arena))},
        Locked(source, this->map->lock_table()) {
    map_.maximum_hashpower(map_.hashpower());
  }

  /// Does nothing: libcuckoo has no prefetch, and does not show where a key's buckets lie.
  void prefetch(Hash) const {}

  ConnId insert(const HashedKey<K>& key, ConnId id) { return map_.insert(key, id).first->second; }
  std::size_t slots() const { return map_.capacity(); }

 private:
  static constexpr double kUtmostLoad = 0.95;
};

template <class K>
using Libcuckoo = LibraryMap<K, LibcuckooLibrary<K>>;

static_assert(ConnectionTable<Libcuckoo<KeyV4>, KeyV4> && ConnectionTable<Libcuckoo<KeyV6>, KeyV6>);

}  // namespace millrace
