// The tables of a tracker.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "millrace/stragglers.h"
#include "millrace/types.h"

namespace millrace {

/// Originators' entries and replies' entries: in two instances of the same table, or all in the
/// first one.
template <class Table>
struct TablePair {
  Table originators;
  std::optional<Table> replies;
};

/// Ids of a pair's tables that drain.
struct DrainingIds {
  std::vector<ConnId> originators;
  std::vector<ConnId> replies;

  /// With less, a sweep and a burst of openings that are all refused fit without an allocation.
  static constexpr std::size_t kMost = 1024 - 4 * Stragglers::kMax;

  DrainingIds() {
    originators.reserve(1024);
    replies.reserve(1024);
  }

  void add(Side side, ConnId id) {
    (side == Side::originator ? originators : replies).push_back(id);
  }
  bool has_room() const { return originators.size() <= kMost && replies.size() <= kMost; }
  bool empty() const { return originators.empty() && replies.empty(); }
  template <class Table>
  void release(TablePair<Table>& pair) {
    for (const ConnId id : originators) pair.originators.release(id);
    for (const ConnId id : replies) pair.replies->release(id);
    originators.clear();
    replies.clear();
  }
};

}  // namespace millrace
