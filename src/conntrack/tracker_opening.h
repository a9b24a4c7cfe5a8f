// The part of the tracker by which connections get their entries, where need be at the cost of
// others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

/// Of an entry when another one wants its place: by its state's rank, and the longer it was idle
/// the less. What this very burst may be using is safe.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
struct Tracker<TableOf, GuardsType, K>::Worth {
  const Tracker& tracker;
  Side side;
  Tick now;
  bool evicts;
  std::uint8_t newcomer;
  K* left;

  static constexpr std::uint8_t kLeast = 0;  // of what has expired; nothing gives way to it

  std::uint8_t operator()(ConnId id) const {
    if (id == ConnId::none) return newcomer;
    if (tracker.leaves_expired_ && tracker.has_expired(side, id, now)) return kLeast;
    if (!evicts) return kLeast + 1;
    const auto& header = tracker.table_of(side).records().header(id);
    const Standing standing = load_standing(life(tracker.table_of(side).records(), id));
    const unsigned rank = millrace::rank(standing.state(), standing.proof() != Proof::none);
    if (now - seen(header) <= 0) return UINT8_MAX;
    const std::int32_t idle =
        now - tracker.latest_seen(side == Side::originator ? id : header.peer);
    return idle <= 0 ? UINT8_MAX : of(rank, idle);
  }
  void least(ConnId id) const {
    if (side == Side::originator) *left = tracker.originators().header(id).key;
  }
  static std::uint8_t of(unsigned rank, std::int32_t idle_ms) {
    const auto octaves = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(idle_ms)));
    return static_cast<std::uint8_t>(1 + 32 * rank + 31 - std::min(octaves, 31U));
  }
};

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
auto Tracker<TableOf, GuardsType, K>::worth([[maybe_unused]] Side side, [[maybe_unused]] Tick now,
                                            [[maybe_unused]] Newcomer newcomer,
                                            [[maybe_unused]] std::uint8_t protocol) {
  if constexpr (Guarding::kShared) {
    return KeepAll{};  // others may be using what would give way
  } else {
    const bool evicts = evicts_ && newcomer == Newcomer::proved;
    std::uint8_t its_worth = newcomer == Newcomer::adopted ? Worth::kLeast : Worth::kLeast + 1;
    if (evicts) its_worth = Worth::of(protocol == kProtocolTcp ? 3 : 2, 0);
    return Worth{*this, side, now, evicts, its_worth, &left_};
  }
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
Insertion Tracker<TableOf, GuardsType, K>::open(const K& key, Hash hash, Tick now, Closed&& closed,
                                                Newcomer newcomer) {
  if constexpr (!Guarding::kShared) left_ = key;  // unless another's entry gives way
  const Insertion in =
      pair().originators.insert(key, hash, worth(Side::originator, now, newcomer, key.protocol));
  if (in.displaced != ConnId::none) make_way(Side::originator, in, closed);
  if (in.outcome == Insertion::Outcome::inserted) {
    auto& header = originators().header(in.id);
    see(header, now);
    set_peer(header, kUnconfirmed);
    if (follows_) begin_life(originators(), in.id, now);
    ageing_->approach(in.id);
  }
  return in;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
Insertion Tracker<TableOf, GuardsType, K>::link(const K& reply_key, Tick now,
                                                std::span<const std::byte> state, Closed&& closed,
                                                Newcomer newcomer) {
  const Insertion in = pair().replies->insert(
      reply_key, hasher()(reply_key), worth(Side::reply, now, newcomer, reply_key.protocol));
  if (in.displaced != ConnId::none) make_way(Side::reply, in, closed);
  if (in.outcome == Insertion::Outcome::inserted) {
    auto& header = replies().header(in.id);
    see(header, now);
    set_peer(header, kUnconfirmed);
    if (follows_) begin_life(replies(), in.id, now);
    std::memcpy(states(Side::reply)[in.id], state.data(), state.size());
  }
  return in;
}

}  // namespace millrace
