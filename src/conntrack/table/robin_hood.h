// `robin-hood`: tsl::robin_map as a connection table.
//
// The map probes linearly. A newcomer takes the bucket of an entry that stands nearer to that
// entry's home than the newcomer would to its own, and the entry moves on. An erase shifts back the
// entries behind the erased one. Probe lengths therefore differ little up to high loads.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "conntrack/table/tsl_library.h"

namespace millrace {

template <class K>
using RobinHoodMap =
    tsl::robin_map<K, ConnId, LibraryHash<K>, LibraryEqual<K>, PageAllocator<std::pair<K, ConnId>>>;

/// The map, as `LibraryMap` needs it.
template <class K>
class RobinHoodLibrary : public TslLibrary<K, RobinHoodMap<K>> {
 public:
  static constexpr std::string_view kName = "robin-hood";
  static constexpr std::string_view kSummary = "tsl::robin_map: linear probing, Robin Hood order";
  static constexpr double kMaxLoad = 0.9;

  RobinHoodLibrary(std::size_t entries, HashSource<K>* source, PageArena* arena)
      : TslLibrary<K, RobinHoodMap<K>>(entries, kMaxLoad, source, arena) {}
};

template <class K>
using RobinHood = LibraryMap<K, RobinHoodLibrary<K>>;

static_assert(ConnectionTable<RobinHood<KeyV4>, KeyV4> && ConnectionTable<RobinHood<KeyV6>, KeyV6>);

}  // namespace millrace
