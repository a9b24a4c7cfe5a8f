// Connections of a family of a line that go to another process, or come from one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

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
    if (is_there) {
      changed.is_there = 1;
      changed.has_reply = peer_of(tracker_->originators().header(id)) != ConnId::none;
      changed.key = tracker_->originators().header(id).key;
      changed.life = tracker_->image(id, now);
    }
    std::byte* const image = carrying.append(changed, image_bytes);
    if (is_there) function_->write(changed.key, state_of(id), image);
  }
  return end;
}

/// Limits hold for what is new: a connection that lives goes on, and counts.
template <class TrackerType, class K>
Proof Family<TrackerType, K>::take_again(const K& key, Proof had) {
  if (!holds(had)) return had;
  if (sources_ == nullptr) return Proof::service;
  const auto taken = sources_->take(sources_->source_of(key), SourceLimit::kMost);
  return taken == SourceCounts::Taken::counted ? Proof::service_and_source : Proof::service;
}

template <class TrackerType, class K>
ConnId Family<TrackerType, K>::resume(const CarriedConnection<K>& carried, Line::Images images,
                                      Tick now) {
  static_assert(Part::kMost <= TrackerConfig::kStateMax);
  if (!tracker_) return ConnId::none;
  alignas(8) std::array<std::byte, Part::kMost> state{};
  Opening<K> opening{.key = carried.key,
                     .state = state.data(),
                     .reply_state = reply_state_.data(),
                     .is_resumed = true,
                     .image = images.front(),
                     .images = images};
  static const Burst nothing_came{};
  function_->open(nothing_came, opening);
  const bool is_linked = opening.answer == Opening<K>::Answer::two_way;
  const bool was_linked = carried.has_reply != 0;
  if (!opening.is_accepted() || is_linked != was_linked) return ConnId::none;
  const Part part = function_->part();
  LifeImage life = carried.life;
  life.standing = Standing(life.standing.state(), take_again(carried.key, life.standing.proof()));
  [[maybe_unused]] const auto guard = tracker_->writing();
  const ConnId id = tracker_->restore(
      {.key = carried.key,
       .state = std::span(state).first(part.originator_bytes),
       .reply_key = is_linked ? std::optional(opening.reply_key) : std::nullopt,
       .reply_state = std::span(std::as_const(reply_state_)).first(part.reply_bytes)},
      life, now);
  if (id == ConnId::none) {
    if (life.standing.proof() == Proof::service_and_source)
      static_cast<void>(sources_->give_back(sources_->source_of(carried.key)));
    return id;
  }
  function_->event(Event::adopted, state_of(id), holds(life.standing.proof()));
  counters_->taken_over.add(1);
  watch_level();
  return id;
}

template <class TrackerType, class K>
void Family<TrackerType, K>::forget(ConnId id) {
  [[maybe_unused]] const auto guard = tracker_->writing();
  tracker_->close(id, [this](ConnId gone) {
    const Proof proof = tracker_->proof_of(gone);
    give_back_source(gone, proof);
    function_->event(Event::closed, state_of(gone), holds(proof));
  });
  counters_->taken_over.subtract(1);
}

}  // namespace millrace
