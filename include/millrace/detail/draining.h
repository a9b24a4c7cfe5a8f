// The ids of a table that drain, oldest first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "millrace/types.h"

namespace millrace::detail {

class Draining {
 public:
  /// Alone, a burst of openings that are all refused and a sweep's budget fit without an
  /// allocation. Under sharing, where a worker lags, more may drain.
  Draining() { ids_.reserve(1024); }

  void add(ConnId id) { ids_.push_back(id); }
  /// Calls `release(id)` for the oldest `count`, or all where they are fewer.
  template <class Release>
  void settle(std::size_t count, Release&& release) {
    const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(std::min(count, ids_.size()));
    std::for_each(ids_.begin(), end, release);
    ids_.erase(ids_.begin(), end);
  }
  const std::vector<ConnId>& ids() const { return ids_; }
  std::size_t size() const { return ids_.size(); }

 private:
  std::vector<ConnId> ids_;
};

}  // namespace millrace::detail
