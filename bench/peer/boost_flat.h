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

#include <cstddef>
#include <string_view>
#include <utility>

#include "conntrack/table/library_map.h"

// NOLINTNEXTLINE(bugprone-macro-parentheses): a header's name
#define MILLRACE_LIBRARY <boost/unordered/unordered_flat_map.hpp>
#include "conntrack/table/without_assertions.inc"

namespace millrace {

template <class K>
using BoostFlatMap = boost::unordered_flat_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>,
                                               PageAllocator<std::pair<const K, ConnId>>>;

template <class K>
class BoostFlatLibrary : public MapLibrary<K, BoostFlatMap<K>> {
 public:
  static constexpr std::string_view kName = "boost-flat";
  static constexpr std::string_view kSummary =
      "boost::unordered_flat_map: groups of 15 entries, a byte of hash each";
  /// Of 16 slots a group, 15 of which hold an entry. To 0.86 of those the library, when it tires of
  /// erased entries, rehashes into as many slots; above it may double.
  static constexpr double kMaxLoad = 0.79;

  /// Rehashing needs a second array of the same size for as long as it lasts.
  static std::size_t limit(const PageArena& arena) {
    return arena.latest().count * arena.latest().element_bytes;
  }

  BoostFlatLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : MapLibrary<K, BoostFlatMap<K>>(
            source, power_of_two_slots(entries, kMaxLoad, kUtmostLoad) / 16 * 15 - 1,
            LibraryHash<K>{source}, LibraryEqual<K>{},
            PageAllocator<std::pair<const K, ConnId>>(arena)) {}

  /// 1.81 has no call for it, and does not tell where a group lies.
  void prefetch(Hash) const {}
  /// A group's sixteenth slot holds no entry.
  std::size_t slots() const { return (this->map_.bucket_count() + 1) / 15 * 16; }

 private:
  static constexpr double kUtmostLoad = 0.8;
};

template <class K>
using BoostFlat = LibraryMap<K, BoostFlatLibrary<K>>;

static_assert(ConnectionTable<BoostFlat<KeyV4>, KeyV4> && ConnectionTable<BoostFlat<KeyV6>, KeyV6>);

}  // namespace millrace

#endif
