// What others ask of a family of a line: which connections it has, and to end some.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "worker/family.h"

namespace millrace {

template <class TrackerType, class K>
std::optional<std::size_t> Family<TrackerType, K>::look(std::size_t from, Tick now,
                                                        const LookAtConnection& look) {
  if (!tracker_ || from >= tracker_->ids()) return std::nullopt;
  // No more at once than may drain.
  std::array<ConnId, Line::kEndMost> ending;
  std::size_t count = 0;
  const std::size_t end = std::min(from + Line::kLookMost, tracker_->ids());
  std::size_t at = from;
  {
    [[maybe_unused]] const auto guard = tracker_->reading();
    for (; at < end && count < ending.size(); ++at) {
      const ConnId id{static_cast<std::uint32_t>(at)};
      if (!tracker_->is_live_and_mine(id)) continue;
      if (look(listed(id, now)) == Look::end) ending[count++] = id;
    }
  }
  if (count > 0) {
    [[maybe_unused]] const auto guard = tracker_->writing();
    for (std::size_t i = 0; i < count; ++i)
      tracker_->close(ending[i], [this](ConnId id) { closed(id, Ending::killed); });
  }
  if (count > 0) tracker_->settle();
  return at;
}

template <class TrackerType, class K>
std::optional<ListedConnection> Family<TrackerType, K>::find(const K& key, Tick now) const {
  if (!tracker_) return std::nullopt;
  [[maybe_unused]] const auto guard = tracker_->reading();
  const ConnId id = tracker_->peek_one(key, now);
  if (id == ConnId::none) return std::nullopt;
  return listed(id, now);
}

}  // namespace millrace
