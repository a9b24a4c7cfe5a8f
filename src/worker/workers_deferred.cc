// Packets that wait until the other copy has their connection, as pfsync's `defer` has them wait. A
// part of WorkersCopies.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "worker/workers_copies.h"

namespace millrace {
namespace {

/// Frames that a worker holds at most: what comes within some ms.
constexpr std::size_t kMostHeld = 2048;

}  // namespace

/// Only a master waits, for a slave that is in sync and heard.
bool WorkersCopies::waits_for_other(unsigned shard) const {
  const ShardCopy& copy = *shards_[shard];
  return copy.role() == CopyRole::master && copy.is_in_sync() && hears(copy.other());
}

void WorkersCopies::note_deferring(unsigned shard) {
  if (copies_->defer_ms() != 0) line_->set_deferring(shard, waits_for_other(shard));
}

bool WorkersCopies::hold(unsigned shard, const Outgoing& frame, Tick now) {
  if (held_frames_ == kMostHeld) {
    counters_->sent_early.add(1);
    return false;
  }
  if (held_[shard].empty()) holding_.push_back(static_cast<std::uint16_t>(shard));
  held_[shard].push_back({frame, now, {}});
  due_.push_back(static_cast<std::uint16_t>(shard));
  ++held_frames_;
  counters_->deferred.add(1);
  return true;
}

/// Sends the frames that have waited long enough.
void WorkersCopies::release(unsigned shard, Tick now) {
  const ShardCopy& copy = *shards_[shard];
  const bool waits = waits_for_other(shard);
  auto& all = held_[shard];
  if (copy.has_told_all()) {
    for (Held& one : all) {
      if (!one.until) one.until = copy.next();
    }
  }
  std::size_t count = 0;
  for (const Held& one : all) {
    const bool is_known = waits && one.until && copy.acknowledged() >= *one.until;
    if (waits && !is_known && now - one.since < copies_->defer_ms()) break;
    if (!is_known) counters_->sent_early.add(1);
    way_->release(one.frame);
    ++count;
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  held_frames_ -= count;
}

void WorkersCopies::release_all() {
  for (const std::uint16_t shard : holding_) {
    for (const Held& one : held_[shard]) way_->release(one.frame);
    counters_->sent_early.add(held_[shard].size());
    held_[shard].clear();
  }
  holding_.clear();
  held_frames_ = 0;
}

}  // namespace millrace
