// `std`: std::unordered_map as a connection table. The baseline: what a program without a table of
// its own would use.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
class StdLibrary {
 public:
  static constexpr std::string_view kName = "std";
  static constexpr std::string_view kSummary = "std::unordered_map, the baseline";
  static constexpr double kMaxLoad = 1.0;  // entries per bucket; more would only lengthen chains

  /// A node an entry, and one while a newcomer displaces an entry.
  static std::size_t nodes(std::size_t entries) { return entries + 1; }
  static std::size_t limit(const PageArena&) { return 0; }

  StdLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : source_(source), map_(entries + 1, Hasher{source}, Equal{}, Allocator(arena)) {
    map_.emplace(K{}, ConnId::none);  // has the arena map the nodes
    map_.clear();
  }

  /// A node's place is known only by following its bucket's chain: there is nothing to prefetch.
  void prefetch(Hash) const {}

  ConnId find(const HashedKey<K>& key) const {
    const auto at = map_.find(key);
    return at == map_.end() ? ConnId::none : at->second;
  }
  ConnId insert(const HashedKey<K>& key, ConnId id) {
    source_->announce(key);
    return map_.try_emplace(key.key, id).first->second;
  }
  ConnId erase(const HashedKey<K>& key) {
    const auto at = map_.find(key);
    if (at == map_.end()) return ConnId::none;
    const ConnId id = at->second;
    map_.erase(at);
    return id;
  }
  std::size_t size() const { return map_.size(); }

 private:
  using Hasher = LibraryHash<K>;
  using Equal = LibraryEqual<K>;
  using Allocator = PageAllocator<std::pair<const K, ConnId>>;

  HashSource<K>* source_;
  std::unordered_map<K, ConnId, Hasher, Equal, Allocator> map_;
};

template <class K>
using Std = LibraryMap<K, StdLibrary<K>>;

static_assert(ConnectionTable<Std<KeyV4>, KeyV4> && ConnectionTable<Std<KeyV6>, KeyV6>);

}  // namespace millrace
