// `boost-flat`: boost::unordered_flat_map as a connection table, for comparison only. It needs
// Boost 1.81: code that includes this header must test MILLRACE_BOOST_FLAT.
//
// The map has groups of 15 entries with one byte of hash each. One more byte of a group marks the
// hashes with keys that found no place in the group.
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
  /// Highest load over all 16 slots of a group, of which 15 hold an entry. The library rehashes
  /// from time to time because of erased entries: if at most 0.86 of the 15 slots are in use, into
  /// an array of the same size, otherwise perhaps into one of twice the size.
  static constexpr double kMaxLoad = 0.79;

  /// Returns the memory that rehashing needs while it lasts: a second array of the same size.
  static std::size_t limit(const PageArena& arena) {
    return arena.latest().count * arena.latest().element_bytes;
  }

  BoostFlatLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : MapLibrary<K, BoostFlatMap<K>>(
            source, power_of_two_slots(entries, kMaxLoad, kUtmostLoad) / 16 * 15 - 1,
            LibraryHash<K>{source}, LibraryEqual<K>{},
            PageAllocator<std::pair<const K, ConnId>>(arena)) {}

  /// Does nothing: Boost 1.81 has no prefetch, and does not show where a group lies.
  void prefetch(Hash) const {}
  /// Returns the number of slots; the sixteenth slot of each group holds no entry.
  std::size_t slots() const { return (this->map_.bucket_count() + 1) / 15 * 16; }

 private:
  static constexpr double kUtmostLoad = 0.8;
};

template <class K>
using BoostFlat = LibraryMap<K, BoostFlatLibrary<K>>;

static_assert(ConnectionTable<BoostFlat<KeyV4>, KeyV4> && ConnectionTable<BoostFlat<KeyV6>, KeyV6>);

}  // namespace millrace

#endif
