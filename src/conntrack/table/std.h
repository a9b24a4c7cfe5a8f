// `std`: std::unordered_map as a connection table. It is the baseline: the map that a program
// without a table of its own would use.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
using StdMap = std::unordered_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>,
                                  PageAllocator<std::pair<const K, ConnId>>>;

/// The map, as `LibraryMap` needs it.
template <class K>
class StdLibrary : public MapLibrary<K, StdMap<K>> {
  using MapLibrary<K, StdMap<K>>::map_;

 public:
  static constexpr std::string_view kName = "std";
  static constexpr std::string_view kSummary = "std::unordered_map, the baseline";
  static constexpr double kMaxLoad = 1.0;  // entries per bucket; more would only lengthen chains

  /// Returns one node for each entry, and one more for a newcomer that evicts an entry.
  static std::size_t nodes(std::size_t entries) { return entries + 1; }

  StdLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : MapLibrary<K, StdMap<K>>(source, entries + 1, LibraryHash<K>{source}, LibraryEqual<K>{},
                                 PageAllocator<std::pair<const K, ConnId>>(arena)) {
    map_.emplace(K{}, ConnId::none);  // makes the arena map the nodes
    map_.clear();
  }

  /// Does nothing: the address of a node is known only from its bucket's chain.
  void prefetch(Hash) const {}
};

template <class K>
using Std = LibraryMap<K, StdLibrary<K>>;

static_assert(ConnectionTable<Std<KeyV4>, KeyV4> && ConnectionTable<Std<KeyV6>, KeyV6>);

}  // namespace millrace
