// The tables of a tracker, and the draining ids of these tables.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "millrace/stragglers.h"
#include "millrace/types.h"

namespace millrace {

/// The tables of originators' entries and of replies' entries. Without `replies`, `originators`
/// holds the entries of both sides.
template <class Table>
struct TablePair {
  Table originators;
  std::optional<Table> replies;
};

/// The draining ids of a pair's tables.
struct DrainingIds {
  std::vector<ConnId> originators;
  std::vector<ConnId> replies;

  /// Number of draining ids up to which the reserved memory has room for the ids of a sweep and of
  /// a burst of refused openings.
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
