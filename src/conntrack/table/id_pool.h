// Ids for tables that do not derive them from a slot's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "millrace/types.h"

namespace millrace {

/// Gives out the ids 0 to count - 1. A returned id drains until `settle`.
class IdPool {
 public:
  explicit IdPool(std::size_t count) {
    free_.reserve(count);
    draining_.reserve(count);
    while (count-- > 0) free_.push_back(ConnId{static_cast<std::uint32_t>(count)});
  }

  /// None when all are in use or draining.
  ConnId take() {
    if (free_.empty()) return ConnId::none;
    const ConnId id = free_.back();
    free_.pop_back();
    return id;
  }
  void give_back(ConnId id) { draining_.push_back(id); }
  void settle() {
    free_.insert(free_.end(), draining_.begin(), draining_.end());
    draining_.clear();
  }

  std::size_t free() const { return free_.size(); }
  std::size_t draining() const { return draining_.size(); }
  std::size_t memory_bytes() const {
    return (free_.capacity() + draining_.capacity()) * sizeof(ConnId);
  }

 private:
  std::vector<ConnId> free_;
  std::vector<ConnId> draining_;
};

}  // namespace millrace
