// Connections of shards that have a copy at another server (replicate/copy.h). A part of family.h.
//
// Each change puts the connection into its shard's queue. What is told is the connection as it is
// when its turn comes, or that it is gone: so a connection stands there once, however often it
// changes. To tell all connections of a shard, and to find those that the other copy has not told
// again, the shard's list is walked from its first connection on, each of which then becomes the
// last.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "line/family.h"

namespace millrace {

/// Puts a live connection into its shard's queue, if the other copy should hear of it. Connections
/// that no packet has proved are not told: a flood would fill the link between the servers, and a
/// connection that begins anew at the other server loses nothing yet.
template <class TrackerType, class K>
void Family<TrackerType, K>::note_change(ConnId id) {
  CopiedShards::Mark& mark = tracker_->copied()->mark(id);
  CopiedShard<K>& shard = copied_[mark.shard];
  const bool is_others = shard.role == CopyRole::slave && mark.is_with_other;
  if (shard.role == CopyRole::none || is_others || mark.is_queued) return;
  const bool is_worth_it =
      tracker_->proof_of(id) != Proof::none || shard.tells_unproved || shard.defers;
  if (!is_worth_it && !mark.is_told) return;
  mark.is_queued = true;
  enqueue(mark.shard, tracker_->key_of(id), id);
}

/// Notes which packets are of connections that the other copy does not have yet, and sees to it
/// that it is told of them.
template <class TrackerType, class K>
void Family<TrackerType, K>::find_deferred(Burst& burst) {
  Lane<K>& lane = burst.lane<K>();
  for (unsigned i = 0; i < lane.size; ++i) {
    ConnId id = lane.connection[i];
    if (id == ConnId::none) continue;
    if (lane.side(i) == Side::reply) id = peer_of(tracker_->originators().header(id));
    if (id == ConnId::none || id == kUnconfirmed) continue;
    const CopiedShards::Mark& mark = tracker_->copied()->mark(id);
    if (mark.is_with_other || !copied_[mark.shard].defers) continue;
    if (!mark.is_told) note_change(id);
    burst.deferred |= std::uint64_t{1} << lane.packet[i];
    burst.shard[lane.packet[i]] = mark.shard;
  }
}

/// Notes that a connection has ended that the other copy has.
template <class TrackerType, class K>
void Family<TrackerType, K>::note_end(ConnId id) {
  const CopiedShards::Mark& mark = tracker_->copied()->mark(id);
  if (copied_[mark.shard].role != CopyRole::master || mark.is_queued || !mark.is_told) return;
  enqueue(mark.shard, tracker_->key_of(id), id);
}

template <class TrackerType, class K>
void Family<TrackerType, K>::enqueue(unsigned shard, const K& key, ConnId id) {
  CopiedShard<K>& to = copied_[shard];
  if (to.has_lost) return;
  if (to.waiting() == CopiedShard<K>::kMostWaiting) {
    to.has_lost = true;
    to.clear();
  } else {
    to.queue.push_back({key, id});
  }
}

template <class TrackerType, class K>
void Family<TrackerType, K>::assign(unsigned shard, CopyRole role, Tick now) {
  if (!tracker_) return;
  CopiedShard<K>& of = copied_[shard];
  of.role = role;
  of.was_master |= role == CopyRole::master;
  if (role == CopyRole::none) of.forget();
  if (role == CopyRole::slave) {
    tracker_->copied()->keep(shard);
  } else {
    tracker_->copied()->let_age(shard, now);
  }
}

template <class TrackerType, class K>
bool Family<TrackerType, K>::give_up(unsigned shard, std::size_t most) {
  if (!tracker_ || tracker_->first_of(shard) == ConnId::none) return true;
  {
    [[maybe_unused]] const auto guard = tracker_->writing();
    for (; most > 0; --most) {
      const ConnId id = tracker_->first_of(shard);
      if (id == ConnId::none) break;
      tracker_->close(id, moved());
    }
  }
  tracker_->reclaim();
  return tracker_->first_of(shard) == ConnId::none;
}

template <class TrackerType, class K>
void Family<TrackerType, K>::tell_all(unsigned shard) {
  if (!tracker_) return;
  CopiedShard<K>& of = copied_[shard];
  of.clear();
  of.has_lost = of.tells_unproved = false;
  of.left_to_tell = tracker_->copied()->count(shard);
}

template <class TrackerType, class K>
void Family<TrackerType, K>::tell_unproved(unsigned shard) {
  if (!tracker_) return;
  CopiedShard<K>& of = copied_[shard];
  of.left_to_tell = tracker_->copied()->count(shard);
  of.tells_unproved = of.left_to_tell > 0;
}

template <class TrackerType, class K>
void Family<TrackerType, K>::begin_all(unsigned shard) {
  if (!tracker_) return;
  CopiedShard<K>& of = copied_[shard];
  of.left_to_sort = 0;
  of.own = std::exchange(of.was_master, false) ? std::optional(of.hearing) : std::nullopt;
  of.hearing = static_cast<std::uint8_t>(of.hearing % UINT8_MAX + 1);
}

template <class TrackerType, class K>
void Family<TrackerType, K>::end_all(unsigned shard) {
  if (tracker_) copied_[shard].left_to_sort = tracker_->copied()->count(shard);
}

/// Tells changes, and goes on with what `tell_all` and `end_all` have begun: `budget` connections
/// at most, which it lowers. True: nothing is left to tell.
template <class TrackerType, class K>
bool Family<TrackerType, K>::tell(unsigned shard, ShardCopy& copy, Tick at, Tick now,
                                  std::size_t& budget) {
  if (!tracker_) return true;
  CopiedShard<K>& of = copied_[shard];
  if (of.has_lost) {
    copy.begin_anew();
    return false;
  }
  note_acknowledged(of, copy);
  walk(shard, budget);
  constexpr std::size_t kAhead = 8;
  for (; of.told < of.queue.size(); ++of.told) {
    if (!copy.has_room()) return false;
    const auto ahead = std::span(of.queue).subspan(of.told);
    if (ahead.size() > kAhead) tracker_->originators().prefetch(ahead[kAhead].id);
    if (ahead.size() > kAhead / 2) tracker_->prefetch_entries(ahead[kAhead / 2].id, now);
    tell(of.queue[of.told], of.role, copy, at, now);
  }
  return of.left_to_tell == 0;
}

/// Forgets the changes that the other copy has acknowledged: it has those connections now.
template <class TrackerType, class K>
void Family<TrackerType, K>::note_acknowledged(CopiedShard<K>& shard, const ShardCopy& copy) {
  const auto until = static_cast<std::uint32_t>(copy.acknowledged());
  for (; shard.acknowledged < shard.told; ++shard.acknowledged) {
    const Change& change = shard.queue[shard.acknowledged];
    if (static_cast<std::int32_t>(change.number - until) >= 0) break;
    // A connection that the slave has opened is with the master once the master tells it again.
    if (shard.role == CopyRole::master && is_there(change))
      tracker_->copied()->mark(change.id).is_with_other = true;
  }
  // So seldom that moving the rest costs little.
  if (shard.acknowledged < CopiedShard<K>::kMostWaiting / 4 &&
      shard.acknowledged < shard.queue.size())
    return;
  shard.queue.erase(shard.queue.begin(),
                    shard.queue.begin() + static_cast<std::ptrdiff_t>(shard.acknowledged));
  shard.told -= shard.acknowledged;
  shard.acknowledged = 0;
}

/// Tells a connection as it is now, or that it is gone.
template <class TrackerType, class K>
void Family<TrackerType, K>::tell(Change& change, CopyRole role, ShardCopy& copy, Tick at,
                                  Tick now) {
  CarriedConnection<K> record{.entry = kCarriedFamily<K>, .key = change.key};
  std::array<std::byte, kMostRecord> bytes;
  static_assert(sizeof(record) + Part::kMost <= kMostRecord);
  std::size_t image_bytes = 0;
  if (is_there(change)) {
    CopiedShards::Mark& mark = tracker_->copied()->mark(change.id);
    mark.is_queued = false;
    mark.is_told = true;
    record = carried(change.id, now);
    record.entry = kCarriedFamily<K>;
    image_bytes = function_->part().image_bytes;
    function_->write(record.key, state_of(change.id), bytes.data() + sizeof(record));
  } else if (role == CopyRole::slave) {
    return;
  }
  std::memcpy(bytes.data(), &record, sizeof(record));
  change.number = static_cast<std::uint32_t>(copy.next());
  copy.tell(std::span(bytes).first(sizeof(record) + image_bytes), at);
}

/// Looks at the next connections of a shard's list, each of which becomes the last: puts it into
/// the queue, if all are to be told, and ends it, if the other copy had it and has not told it
/// again. One that the other copy never had was opened here, and is told; so is one with which this
/// copy went on as the master while the two could not hear each other.
template <class TrackerType, class K>
void Family<TrackerType, K>::walk(unsigned shard, std::size_t& budget) {
  CopiedShard<K>& of = copied_[shard];
  constexpr std::size_t kWaiting = 256;  // changes in the queue that are enough
  while (budget > 0 && (of.left_to_tell > 0 || of.left_to_sort > 0)) {
    if (of.waiting() >= kWaiting || of.has_lost) return;
    const ConnId id = tracker_->first_of(shard);
    if (id == ConnId::none) {
      of.left_to_tell = of.left_to_sort = 0;
      of.tells_unproved = false;
      return;
    }
    --budget;
    CopiedShards::Mark& mark = tracker_->copied()->mark(id);
    const bool is_unheard = of.left_to_sort > 0 && mark.heard != of.hearing && mark.is_with_other;
    const bool is_own = is_unheard && of.is_own(mark.heard);
    of.left_to_tell -= std::min(of.left_to_tell, 1U);
    of.left_to_sort -= std::min(of.left_to_sort, 1U);
    if (is_own) mark.is_with_other = mark.is_told = false;
    if (is_unheard && !is_own) {
      end_copied(id);
      continue;
    }
    mark.is_queued = false;  // the queue may have been cleared since
    note_change(id);
    of.tells_unproved &= of.left_to_tell > 0;
    tracker_->rotate(shard);
  }
  tracker_->reclaim();
}

template <class TrackerType, class K>
void Family<TrackerType, K>::end_copied(ConnId id) {
  [[maybe_unused]] const auto guard = tracker_->writing();
  tracker_->close(id, expired());
}

/// Takes over what the other copy has told of a connection.
template <class TrackerType, class K>
auto Family<TrackerType, K>::apply(unsigned shard, std::span<const std::byte> bytes,
                                   const CarriedLayout* theirs, Tick now) -> Applied {
  CarriedConnection<K> record;
  const std::size_t head = theirs == nullptr ? sizeof(record) : theirs->head_bytes();
  if (!tracker_ || bytes.size() < head) return Applied::malformed;
  std::memcpy(&record, bytes.data(), std::min(sizeof(record), head));
  const auto images = bytes.subspan(head);
  CopiedShard<K>& of = copied_[shard];
  const ConnId id = mine_with(record.key, shard, now);
  if (record.is_there == 0) {
    if (!images.empty()) return Applied::malformed;
    const bool is_masters = of.role == CopyRole::slave;
    if (is_masters && id != ConnId::none) end_copied(id);
    tracker_->reclaim();
    return Applied::done;
  }
  const Standing standing = record.life.standing;
  const std::size_t image_bytes =
      theirs == nullptr ? function_->part().image_bytes : theirs->image_bytes();
  if (images.size() != image_bytes || !is_of(standing.state(), record.key.protocol) ||
      standing.has_ended() || standing.is_of_reply() ||
      std::cmp_greater(record.life.idle_ms, std::numeric_limits<std::int32_t>::max()))
    return Applied::malformed;
  const bool is_better = id != ConnId::none && tracker_->proof_of(id) == Proof::none;
  if (id != ConnId::none && of.role == CopyRole::master && !is_better) {
    // The slave has opened what this copy has, too: it is told what is here.
    note_change(id);
    return Applied::done;
  }
  const bool is_readable = find_images(images, theirs);
  ConnId is = id;
  if (id == ConnId::none || !is_readable || !renew(id, record, images, theirs, now)) {
    if (id != ConnId::none) replace(id);
    CarriedConnection<K> carried = record;
    carried.life = in_resync(record);
    is = is_readable ? resume(carried, images_, now, shard) : ConnId::none;
  }
  tracker_->reclaim();
  if (is == ConnId::none) return Applied::no_place;
  CopiedShards::Mark& mark = tracker_->copied()->mark(is);
  mark.is_told = mark.is_with_other = true;
  mark.heard = of.hearing;
  if (of.role == CopyRole::master) note_change(is);
  return Applied::done;
}

/// Returns the originator's entry of this worker's connection with that key; none if there is none
/// in that shard.
template <class TrackerType, class K>
ConnId Family<TrackerType, K>::mine_with(const K& key, unsigned shard, Tick now) const {
  const ConnId id = tracker_->peek_one(key, now);
  const bool is_it = id != ConnId::none && tracker_->originators().header(id).key == key &&
                     tracker_->copied()->shard_of(id) == shard;
  return is_it ? id : ConnId::none;
}

/// Finds this line's images in those of a record (`images_`). False: a function that is not here
/// serves the connection.
template <class TrackerType, class K>
bool Family<TrackerType, K>::find_images(std::span<const std::byte> images,
                                         const CarriedLayout* theirs) {
  if (theirs != nullptr) [[unlikely]]
    return theirs->map(images, mapped_, images_);
  const std::byte* next = images.data();
  for (std::size_t n = 0; n < images_.size(); next += image_bytes_[n++]) images_[n] = next;
  return true;
}

/// Takes the life of a connection over that is there already. False: something else of it has
/// changed, or which limits count it.
template <class TrackerType, class K>
bool Family<TrackerType, K>::renew(ConnId id, const CarriedConnection<K>& record,
                                   std::span<const std::byte> images, const CarriedLayout* theirs,
                                   Tick now) {
  const bool has_reply = peer_of(tracker_->originators().header(id)) != ConnId::none;
  const Proof proof = tracker_->proof_of(id);
  if (has_reply != (record.has_reply != 0) || holds(proof) != holds(record.life.standing.proof()))
    return false;
  std::array<std::byte, Part::kMost> here;
  function_->write(record.key, state_of(id), here.data());
  const bool is_same = theirs == nullptr
                           ? std::ranges::equal(images, std::span(here).first(images.size()))
                           : theirs->has_same(mapped_, here);
  if (!is_same) return false;
  LifeImage life = in_resync(record);
  life.standing =
      Standing(life.standing.state(), holds(proof) ? proof : record.life.standing.proof());
  tracker_->renew(id, life, now);
  return true;
}

/// Ends a connection whose place the other copy's gets: the other copy is told nothing of it.
template <class TrackerType, class K>
void Family<TrackerType, K>::replace(ConnId id) {
  [[maybe_unused]] const auto guard = tracker_->writing();
  tracker_->copied()->mark(id).is_told = false;
  tracker_->close(id, moved());
}

/// Returns the life of a connection as it goes on here. The other copy tells no sequence numbers as
/// they move on, so the first segment of each side sets its mark.
template <class TrackerType, class K>
LifeImage Family<TrackerType, K>::in_resync(const CarriedConnection<K>& record) {
  LifeImage life = record.life;
  life.windows = {};
  const bool is_young = is_half_open(life.standing.state());
  if (record.key.protocol == kProtocolTcp && !is_young) life.mark = life.reply_mark = 0;
  return life;
}

}  // namespace millrace
