// `boost-flat`: boost::unordered_flat_map as a connection table, for comparison only. There from
// Boost 1.81 on: whoever includes this asks MILLRACE_BOOST_FLAT.
//
// Groups of 15 entries with a byte of hash each, and a byte that says which hashes went past.
#pragma once

#if __has_include(<boost/version.hpp>)
#include <boost/version.hpp>
#endif

#if defined(BOOST_VERSION) && BOOST_VERSION >= 108100
#define MILLRACE_BOOST_FLAT 1

// Without its assertions, as a release has it.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define NDEBUG 1
#include <boost/unordered/unordered_flat_map.hpp>
#pragma pop_macro("NDEBUG")
#include <cassert>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
class BoostFlatLibrary {
 public:
  static constexpr std::string_view kName = "boost-flat";
  static constexpr std::string_view kSummary =
      "boost::unordered_flat_map: groups of 15 entries, a byte of hash each";
  /// Of 16 slots a group, 15 of which hold an entry. To 0.86 of those the library, when it tires of
  /// erased entries, rehashes into as many slots; above it may double.
  static constexpr double kMaxLoad = 0.79;

  static std::size_t nodes(std::size_t) { return 0; }
  /// Rehashing needs a second array of the same size for as long as it lasts.
  static std::size_t limit(const PageArena& arena) {
    return arena.latest().count * arena.latest().element_bytes;
  }

  BoostFlatLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : source_(source),
        map_(std::max(kFewest, buckets_for(entries, kMaxLoad)) / 16 * 15 - 1,
             LibraryHash<K>{source}, LibraryEqual<K>{}, Allocator(arena)) {}

  /// 1.81 has no call for it, and does not tell where a group lies.
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
  using Allocator = PageAllocator<std::pair<const K, ConnId>>;

  static constexpr std::size_t kFewest = 32;

  HashSource<K>* source_;
  boost::unordered_flat_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>, Allocator> map_;
};

template <class K>
using BoostFlat = LibraryMap<K, BoostFlatLibrary<K>>;

static_assert(ConnectionTable<BoostFlat<KeyV4>, KeyV4> && ConnectionTable<BoostFlat<KeyV6>, KeyV6>);

}  // namespace millrace

#endif
