// The common part of `hopscotch` and `robin-hood`: the maps of the tsl libraries have one
// interface, and keep all buckets in one array.
#pragma once

#include <cstddef>

#include "conntrack/table/library_map.h"

namespace millrace {

/// A map, as `LibraryMap` needs it. `Map` is a tsl::hopscotch_map or tsl::robin_map.
template <class K, class Map>
class TslLibrary : public MapLibrary<K, Map> {
 public:
  void prefetch(Hash hash) const { buckets_.prefetch(hash); }

 protected:
  TslLibrary(std::size_t entries, double max_load, HashSource<K>* source, PageArena* arena)
      : MapLibrary<K, Map>(source, power_of_two_slots(entries, max_load, kUtmostLoad),
                           LibraryHash<K>{source}, LibraryEqual<K>{},
                           typename Map::allocator_type(arena)),
        buckets_(arena->latest(), this->map_.bucket_count()) {
    this->map_.max_load_factor(kUtmostLoad);
  }

 private:
  /// The highest load that the libraries allow: above it they grow.
  static constexpr float kUtmostLoad = 0.95F;

  BucketArray buckets_;
};

}  // namespace millrace
