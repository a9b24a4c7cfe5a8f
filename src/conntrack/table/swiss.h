// `swiss`: absl::flat_hash_map as a connection table.
//
// Groups of 16 control bytes, 7 bits of hash each, matched with one SIMD instruction; entries in an
// array beside them.
#pragma once

// Without its assertions: they look up every newcomer once more.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define NDEBUG 1
#include <absl/container/flat_hash_map.h>
#pragma pop_macro("NDEBUG")
#include <cassert>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

namespace millrace {

template <class K>
class SwissLibrary {
 public:
  static constexpr std::string_view kName = "swiss";
  static constexpr std::string_view kSummary =
      "absl::flat_hash_map: groups of 16 control bytes, entries beside them";
  /// Just under 25/32. An erased entry may leave a tombstone, and when entries and tombstones reach
  /// 7/8 the library cleans up in place at loads to 25/32, but doubles above.
  static constexpr double kMaxLoad = 0.78;

  static std::size_t nodes(std::size_t) { return 0; }
  static std::size_t limit(const PageArena&) { return 0; }

  SwissLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : map_(std::max(kFewest, buckets_for(entries, kMaxLoad)) - 1, LibraryHash<K>{source},
             LibraryEqual<K>{}, Allocator(arena)) {}

  void prefetch(Hash hash) const {
    map_.prefetch(HashedKey<K>{kAny, hash});
    asm volatile("");  // see detail/prefetch.h
  }

  ConnId find(const HashedKey<K>& key) const {
    const auto at = map_.find(key, key.hash);
    return at == map_.end() ? ConnId::none : at->second;
  }
  ConnId insert(const HashedKey<K>& key, ConnId id) {
    return map_.try_emplace(key, id).first->second;
  }
  ConnId erase(const HashedKey<K>& key) {
    const auto at = map_.find(key, key.hash);
    if (at == map_.end()) return ConnId::none;
    const ConnId id = at->second;
    map_.erase(at);
    return id;
  }
  std::size_t size() const { return map_.size(); }

 private:
  using Allocator = PageAllocator<std::pair<const K, ConnId>>;

  // Below, it never cleans up in place.
  static constexpr std::size_t kFewest = 32;
  static constexpr K kAny{};  // to prefetch, the hash is enough

  absl::flat_hash_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>, Allocator> map_;
};

template <class K>
using Swiss = LibraryMap<K, SwissLibrary<K>>;

static_assert(ConnectionTable<Swiss<KeyV4>, KeyV4> && ConnectionTable<Swiss<KeyV6>, KeyV6>);

}  // namespace millrace
