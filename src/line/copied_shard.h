// Data that a line keeps of a shard with a copy at another server: the connections that are to be
// told (family_copied.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/types.h"
#include "replicate/copy.h"

namespace millrace {

/// One family's part.
template <class K>
struct CopiedShard {
  struct Change {
    K key;
    ConnId id;
    std::uint32_t number = 0;  ///< low bits of its record's number, once it is told
  };
  /// Changes that may wait: as many as a busy shard has that has fallen behind by some ms.
  static constexpr std::size_t kMostWaiting = 8192;

  CopyRole role = CopyRole::none;
  /// Connections that have changed: those from `acknowledged` on are told and not acknowledged,
  /// those from `told` on are to be told.
  std::vector<Change> queue;
  std::size_t acknowledged = 0;
  std::size_t told = 0;
  bool defers = false;  ///< packets of connections that the other copy does not have are deferred
  bool tells_unproved = false;  ///< until `left_to_tell` is 0: also what no packet has proved
  bool has_lost = false;        ///< too many waited: all is to be told anew
  std::uint8_t hearing = 0;     ///< number of the time that the other copy tells everything
  bool was_master = false;      ///< since `hearing` began
  /// Connections told at that time, or never, were this copy's own while it was the master.
  std::optional<std::uint8_t> own;
  std::uint32_t left_to_tell = 0;  ///< connections of the shard's list to be looked at
  std::uint32_t left_to_sort = 0;

  std::size_t waiting() const { return queue.size() - told; }
  /// True if the connection may have gone on here while the other copy could not know.
  bool is_own(std::uint8_t heard) const { return own && (heard == 0 || heard == *own); }
  void clear() {
    queue = {};
    acknowledged = told = 0;
  }
  /// Forgets what was to be told and sorted.
  void forget() {
    clear();
    has_lost = tells_unproved = false;
    left_to_tell = left_to_sort = 0;
  }
};

}  // namespace millrace
