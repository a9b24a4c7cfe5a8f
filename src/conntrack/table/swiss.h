// `swiss`: absl::flat_hash_map as a connection table.
//
// A control byte for each slot holds 7 bits of the hash. One SIMD instruction compares a group of
// 16 control bytes. The entries stand in an array beside the control bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

// Leaves out the library's assertions, which would look up every newcomer once more.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a header's name
#define MILLRACE_LIBRARY "core/flat_hash_map.h"
#include "conntrack/table/without_assertions.inc"

namespace millrace {

template <class K>
using SwissMap = absl::flat_hash_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>,
                                     PageAllocator<std::pair<const K, ConnId>>>;

/// The map, as `LibraryMap` needs it.
template <class K>
class SwissLibrary : public MapLibrary<K, SwissMap<K>> {
  using MapLibrary<K, SwissMap<K>>::map_;

 public:
  static constexpr std::string_view kName = "swiss";
  static constexpr std::string_view kSummary =
      "absl::flat_hash_map: groups of 16 control bytes, entries beside them";
  /// A load just under 25/32. An erased entry may leave a tombstone. When entries and tombstones
  /// reach 7/8 of the slots, the library rehashes in place if the load is at most 25/32, and
  /// doubles the array if the load is higher.
  static constexpr double kMaxLoad = 0.78;

  SwissLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : MapLibrary<K, SwissMap<K>>(source, power_of_two_slots(entries, kMaxLoad, kUtmostLoad) - 1,
                                   LibraryHash<K>{source}, LibraryEqual<K>{},
                                   PageAllocator<std::pair<const K, ConnId>>(arena)) {
    // The map must never try to grow: it sets its new capacity before it allocates, so a refused
    // allocation would leave the map with an array smaller than its capacity.
    if (32 * std::uint64_t{entries} > 25 * std::uint64_t{map_.capacity()})
      throw std::length_error("absl::flat_hash_map could grow");
  }

  void prefetch(Hash hash) const {
    map_.prefetch(HashedKey<K>{kAny, hash});
    asm volatile("");  // see detail/prefetch.h
  }

  ConnId insert(const HashedKey<K>& key, ConnId id) {
    return map_.try_emplace(key, id).first->second;
  }

 private:
  static constexpr double kUtmostLoad = 0.781;  // just under 25/32, as in the constructor's check
  static constexpr K kAny{};                    // prefetching reads the hash only
};

template <class K>
using Swiss = LibraryMap<K, SwissLibrary<K>>;

static_assert(ConnectionTable<Swiss<KeyV4>, KeyV4> && ConnectionTable<Swiss<KeyV6>, KeyV6>);

}  // namespace millrace
