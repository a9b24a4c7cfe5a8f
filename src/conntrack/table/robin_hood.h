// `robin-hood`: tsl::robin_map as a connection table.
//
// Linear probing in which a newcomer takes the place of whoever stands nearer to its own home, and
// deletion shifts back: the spread of probe lengths stays small up to high loads.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
class RobinHoodLibrary {
 public:
  static constexpr std::string_view kName = "robin-hood";
  static constexpr std::string_view kSummary = "tsl::robin_map: linear probing, Robin Hood order";
  static constexpr double kMaxLoad = 0.9;

  static std::size_t nodes(std::size_t) { return 0; }
  static std::size_t limit(const PageArena&) { return 0; }

  RobinHoodLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : source_(source),
        map_(buckets_for(entries, kMaxLoad), LibraryHash<K>{source}, LibraryEqual<K>{},
             Allocator(arena)),
        buckets_(arena->latest(), map_.bucket_count()) {
    map_.max_load_factor(0.95F);  // the library's highest, so that it never wants to grow at ours
  }

  void prefetch(Hash hash) const { buckets_.prefetch(hash); }

  ConnId find(const HashedKey<K>& key) const {
    const auto at = map_.find(key.key, key.hash);
    return at == map_.end() ? ConnId::none : at->second;
  }
  ConnId insert(const HashedKey<K>& key, ConnId id) {
    source_->announce(key);
    return map_.try_emplace(key.key, id).first->second;
  }
  ConnId erase(const HashedKey<K>& key) {
    const auto at = map_.find(key.key, key.hash);
    if (at == map_.end()) return ConnId::none;
    const ConnId id = at->second;
    map_.erase(at);
    return id;
  }
  std::size_t size() const { return map_.size(); }

 private:
  using Allocator = PageAllocator<std::pair<K, ConnId>>;

  HashSource<K>* source_;
  tsl::robin_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>, Allocator> map_;
  BucketArray buckets_;
};

template <class K>
using RobinHood = LibraryMap<K, RobinHoodLibrary<K>>;

static_assert(ConnectionTable<RobinHood<KeyV4>, KeyV4> && ConnectionTable<RobinHood<KeyV6>, KeyV6>);

}  // namespace millrace
