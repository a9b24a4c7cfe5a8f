// Connections that go to another worker or process, or come from one. A part of family.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "line/family.h"

namespace millrace {

template <class TrackerType, class K>
std::optional<std::size_t> Family<TrackerType, K>::carry(std::size_t from, std::size_t most,
                                                         Tick now, CarryingFor<K>& carrying) {
  constexpr std::size_t kAhead = 8;
  if (!tracker_ || from >= tracker_->ids()) return std::nullopt;
  const std::size_t end = std::min(from + most, tracker_->ids());
  if (carrying.told.size() < end) carrying.told.resize(end);
  const std::size_t image_bytes = function_->part().image_bytes;
  [[maybe_unused]] const auto guard = tracker_->reading();
  for (std::size_t at = from; at < end; ++at) {
    if (at + kAhead < end)
      tracker_->prefetch_entries(ConnId{static_cast<std::uint32_t>(at + kAhead)}, now);
    const ConnId id{static_cast<std::uint32_t>(at)};
    const bool is_there = tracker_->is_live_and_mine(id);
    const std::uint32_t is = is_there ? tracker_->fingerprint(id, now) : 0;
    if (is == carrying.told[at]) continue;
    carrying.told[at] = is;
    CarriedConnection<K> changed{.entry = static_cast<std::uint32_t>(at)};
    if (is_there) changed = carried(id, now);
    // A busy connection's idle time counts as 0: later packets do not change its fingerprint, so
    // its record is not sent again for them.
    if (changed.life.idle_ms < TrackerType::kBusyMs) changed.life.idle_ms = 0;
    std::byte* const image = append_record(carrying.changed, changed, image_bytes);
    ++carrying.count;
    if (is_there) function_->write(changed.key, state_of(id), image);
  }
  return end;
}

template <class TrackerType, class K>
CarriedConnection<K> Family<TrackerType, K>::carried(ConnId id, Tick now) const {
  const auto& header = tracker_->originators().header(id);
  return {.entry = static_cast<std::uint32_t>(index(id)),
          .is_there = 1,
          .has_reply = peer_of(header) != ConnId::none,
          .life = tracker_->image(id, now),
          .key = header.key};
}

template <class TrackerType, class K>
bool Family<TrackerType, K>::pack(unsigned shard, std::size_t most, Tick now,
                                  std::vector<std::byte>& parcel) {
  if (!tracker_ || tracker_->first_of(shard) == ConnId::none) return true;
  const std::size_t image_bytes = function_->part().image_bytes;
  const std::size_t at = parcel.size();
  CarriedBlock block{.family = kCarriedFamily<K>};
  parcel.resize(at + sizeof(block));
  {
    [[maybe_unused]] const auto guard = tracker_->writing();
    for (std::size_t left = most; left > 0; --left) {
      const ConnId id = tracker_->first_of(shard);
      if (id == ConnId::none) break;
      if (expires_ && tracker_->is_idle_too_long(id, now)) {
        // This connection is not sent, since the worker that takes the shard may have opened a new
        // one with the same key.
        tracker_->close(id, expired());
        continue;
      }
      const auto record = carried(id, now);
      function_->write(record.key, state_of(id), append_record(parcel, record, image_bytes));
      // The connection goes on at another worker, so the limit of its source still counts it.
      tracker_->close(id, [this](ConnId gone) {
        function_->event(Event::closed, tracker_->key_of(gone), state_of(gone),
                         holds(tracker_->proof_of(gone)));
      });
      tracker_->prefetch_leaving(shard);
      ++block.count;
    }
  }
  tracker_->reclaim();
  std::memcpy(&parcel[at], &block, sizeof(block));
  return tracker_->first_of(shard) == ConnId::none;
}

template <class TrackerType, class K>
std::span<const std::byte> Family<TrackerType, K>::approach(
    std::size_t count, std::span<const std::byte> records) const {
  const std::size_t each = record_bytes();
  for (std::size_t n = 0; n < count; ++n) {
    CarriedConnection<K> carried;
    std::memcpy(&carried, records.data() + n * each, sizeof(carried));
    const Hash hash = tracker_->hasher()(carried.key);
    tracker_->prefetch({&hash, 1});
  }
  return records.subspan(count * each);
}

template <class TrackerType, class K>
std::span<const std::byte> Family<TrackerType, K>::unpack(unsigned shard, std::size_t count,
                                                          std::span<const std::byte> records,
                                                          Tick now) {
  const std::size_t each = record_bytes();
  for (; count > 0; --count, records = records.subspan(each)) {
    CarriedConnection<K> carried;
    std::memcpy(&carried, records.data(), sizeof(carried));
    find_images(records.first(each).subspan(sizeof(carried)), nullptr);
    const bool is_proved = carried.life.standing.proof() != Proof::none;
    const Placed placed = place(carried, carried.life, images_, now, shard,
                                is_proved ? Newcomer::proved : Newcomer::unproved);
    if (placed.id != ConnId::none) continue;
    counters_->closed[static_cast<std::size_t>(placed.why)].add(1);
    if (carried.life.standing.proof() == Proof::service_and_source)
      static_cast<void>(sources_->give_back(sources_->source_of(carried.key)));
  }
  tracker_->reclaim();
  return records;
}

/// Counts a connection towards its source's limit if it counted as proved in the other process
/// (`had`). Returns
/// the limits for which the connection counts here. A limit forbids new connections only, so this
/// connection counts even if its source has reached the limit.
template <class TrackerType, class K>
Proof Family<TrackerType, K>::take_again(const K& key, Proof had) {
  if (!holds(had)) return had;
  if (sources_ == nullptr) return Proof::service;
  const auto taken = sources_->take(sources_->source_of(key), SourceLimit::kMost);
  return taken == SourceCounts::Taken::counted ? Proof::service_and_source : Proof::service;
}

/// Opens a connection that another worker or process had. The connection goes on with `life`.
template <class TrackerType, class K>
auto Family<TrackerType, K>::place(const CarriedConnection<K>& carried, const LifeImage& life,
                                   Line::Images images, Tick now, unsigned shard, Newcomer newcomer)
    -> Placed {
  static_assert(Part::kMost <= TrackerConfig::kStateMax);
  alignas(8) std::array<std::byte, Part::kMost> state{};
  Opening<K> opening{.key = carried.key,
                     .state = state.data(),
                     .reply_state = reply_state_.data(),
                     .is_resumed = true,
                     .image = images.front(),
                     .images = images};
  static const Burst nothing_came{};
  function_->open(nothing_came, opening);
  const bool is_linked = opening.decision == Opening<K>::Decision::two_way;
  const bool was_linked = carried.has_reply != 0;
  if (!opening.is_accepted() || is_linked != was_linked) return {ConnId::none, Ending::moved};
  const Part part = function_->part();
  [[maybe_unused]] const auto guard = tracker_->writing();
  const ConnId id = tracker_->restore(
      {.key = carried.key,
       .state = std::span(state).first(part.originator_bytes),
       .reply_key = is_linked ? std::optional(opening.reply_key) : std::nullopt,
       .reply_state = std::span(std::as_const(reply_state_)).first(part.reply_bytes)},
      life, now, shard, newcomer, gives_way(now));
  if (id == ConnId::none) return {ConnId::none, Ending::evicted};
  function_->event(Event::adopted, tracker_->key_of(id), state_of(id),
                   holds(life.standing.proof()));
  watch_level();
  return {id};
}

template <class TrackerType, class K>
ConnId Family<TrackerType, K>::resume(const CarriedConnection<K>& carried, Line::Images images,
                                      Tick now, unsigned shard) {
  if (!tracker_) return ConnId::none;
  LifeImage life = carried.life;
  life.standing = Standing(life.standing.state(), take_again(carried.key, life.standing.proof()));
  // The connection may have gone on since its record was sent: its marks may be more than a window
  // behind.
  life.windows = {};
  // The caller identifies the connections that it takes over by their entries, so none of these may
  // be evicted.
  const ConnId id = place(carried, life, images, now, shard, Newcomer::adopted).id;
  if (id != ConnId::none) {
    counters_->taken_over.add(1);
  } else if (life.standing.proof() == Proof::service_and_source) {
    static_cast<void>(sources_->give_back(sources_->source_of(carried.key)));
  }
  return id;
}

template <class TrackerType, class K>
void Family<TrackerType, K>::forget(ConnId id) {
  [[maybe_unused]] const auto guard = tracker_->writing();
  tracker_->close(id, [this](ConnId gone) {
    const Proof proof = tracker_->proof_of(gone);
    give_back_source(gone, proof);
    function_->event(Event::closed, tracker_->key_of(gone), state_of(gone), holds(proof));
  });
  counters_->taken_over.subtract(1);
}

}  // namespace millrace
