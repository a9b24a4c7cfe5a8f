// `libcuckoo`: libcuckoo::cuckoohash_map as a connection table, for comparison only.
//
// Two buckets of four entries a key, with a byte of hash each. It is made for many threads; here
// one holds all of its locks for good (`lock_table`), so that no operation takes any.
#pragma once

// Without its assertions, as a release has it.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define NDEBUG 1
#include <libcuckoo/cuckoohash_map.hh>
#pragma pop_macro("NDEBUG")
#include <cassert>

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
class LibcuckooLibrary {
 public:
  static constexpr std::string_view kName = "libcuckoo";
  static constexpr std::string_view kSummary =
      "libcuckoo::cuckoohash_map, all locks held: two buckets of four entries";
  static constexpr double kMaxLoad = 0.93;

  static std::size_t nodes(std::size_t) { return 0; }
  static std::size_t limit(const PageArena&) { return 0; }

  LibcuckooLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : map_(std::make_unique<Map>(buckets_for(entries, kMaxLoad), LibraryHash<K>{source},
                                   LibraryEqual<K>{}, Allocator(arena))),
        locked_(map_->lock_table()) {
    locked_.maximum_hashpower(locked_.hashpower());
  }

  /// It has no call for it, and does not tell where a key's buckets lie.
  void prefetch(Hash) const {}

  ConnId find(const HashedKey<K>& key) const {
    const auto at = locked_.find(key);
    return at == locked_.end() ? ConnId::none : at->second;
  }
  ConnId insert(const HashedKey<K>& key, ConnId id) {
    return locked_.insert(key, id).first->second;
  }
  ConnId erase(const HashedKey<K>& key) {
    auto at = locked_.find(key);
    if (at == locked_.end()) return ConnId::none;
    const ConnId id = at->second;
    locked_.erase(at);
    return id;
  }
  std::size_t size() const { return locked_.size(); }

 private:
  using Allocator = PageAllocator<std::pair<const K, ConnId>>;
  using Map = libcuckoo::cuckoohash_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>, Allocator>;

  std::unique_ptr<Map> map_;
  typename Map::locked_table locked_;
};

template <class K>
using Libcuckoo = LibraryMap<K, LibcuckooLibrary<K>>;

static_assert(ConnectionTable<Libcuckoo<KeyV4>, KeyV4> && ConnectionTable<Libcuckoo<KeyV6>, KeyV6>);

}  // namespace millrace
