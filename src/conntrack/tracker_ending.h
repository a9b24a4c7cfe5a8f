// The part of the tracker that ends connections and erases their entries.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
bool Tracker<TableOf, GuardsType, K>::sweep(Tick now, unsigned budget, Closed&& closed) {
  struct Mine final : Connections {
    Mine(Tracker& of, Tick at, Closed& is_told) : tracker(of), now(at), told(is_told) {}
    void deadlines(std::span<const ConnId> ids, std::span<Tick> at) const override {
      for (const ConnId id : ids) tracker.originators().prefetch(id);
      for (const ConnId id : ids) tracker.prefetch_reply(id);
      for (std::size_t i = 0; i < ids.size(); ++i)
        at[i] = tracker.capped(now, tracker.deadline(ids[i]));
    }
    void expire(std::span<const ConnId> ids) override {
      std::array<K, kMostAtOnce> keys;
      std::array<Hash, kMostAtOnce> all_hashes;
      for (std::size_t i = 0; i < ids.size(); ++i)
        keys[i] = tracker.originators().header(ids[i]).key;
      const auto hashes = std::span(all_hashes).first(ids.size());
      tracker.hasher()(std::span<const K>(keys).first(ids.size()), hashes);
      tracker.table().prefetch(hashes);
      for (std::size_t i = 0; i < ids.size(); ++i) tracker.end_life(ids[i], hashes[i], told);
    }
    Tracker& tracker;
    Tick now;
    Closed& told;
  };
  if (copied_) copied_->note_time(now);
  Mine mine(*this, now, closed);
  return ageing_->sweep(now, budget, mine);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline void Tracker<TableOf, GuardsType, K>::prefetch_reply(ConnId id) const {
  const ConnId reply = originators().header(id).peer;
  if (reply != ConnId::none) replies().prefetch(reply);
}

/// Returns the later of the two entries' ticks and writes it to both entries, so that neither tick
/// grows so old that it seems to lie in the future. Every ageing scheme but `none` calls this
/// whenever it reads the connection's deadline.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
Tick Tracker<TableOf, GuardsType, K>::latest_seen(ConnId id) const {
  auto& header = originators().header(id);
  const Tick there = seen(header);
  const ConnId peer = peer_of(header);
  const auto counts = [&](Tick at) { return copied_ ? copied_->last_seen(id, at) : at; };
  if (peer == ConnId::none || peer == kUnconfirmed) {
    const Tick latest = counts(there);
    see_instead(header, there, latest);
    return latest;
  }
  auto& reply = replies().header(peer);
  const Tick back = seen(reply);
  const Tick latest = counts(back - there > 0 ? back : there);
  see_instead(header, there, latest);
  see_instead(reply, back, latest);
  return latest;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::has_expired(Side side, ConnId id, Tick now) const {
  const auto& header = table_of(side).records().header(id);
  if (now - seen(header) < least_timeout_) return false;  // saves reading the state
  if (now - (seen(header) + timeout_of(side, id)) < 0) return false;
  return now - deadline(side == Side::originator ? id : header.peer) >= 0;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
void Tracker<TableOf, GuardsType, K>::make_way(Side side, const Insertion& in, Closed&& closed) {
  if (follows_) side = side_of(in.displaced);
  const ConnId peer = table_of(side).records().header(in.displaced).peer;
  const ConnId id = side == Side::originator ? in.displaced : peer;
  ageing_->gone(id);
  leave_life(id);
  if (side == Side::originator && in.displaced == in.id) leaving_ = id;
  closed(id);
  leaving_ = ConnId::none;
  const Side other = side == Side::originator ? Side::reply : Side::originator;
  if (peer != ConnId::none) erase(other, peer, hash_of(other, peer));
  if (side == Side::originator) count_connections(-1);
  if (in.displaced == in.id) return;
  set_peer(table_of(side).records().header(in.displaced), kUnconfirmed);
  reclaiming_.add(pair().replies ? side : Side::originator, in.displaced);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::erase(Side side, ConnId id, Hash hash) {
  const bool is_apart = side == Side::reply && pair().replies;
  Table& table = is_apart ? *pair().replies : pair().originators;
  auto& header = table.records().header(id);
  table.erase(header.key, hash);
  set_peer(header, kUnconfirmed);
  reclaiming_.add(is_apart ? Side::reply : Side::originator, id);
  if (side == Side::originator) count_connections(-1);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::leave_life(ConnId id) {
  --live_;
  if (shards_) shards_->unlink(id);
  if (copied_) copied_->gone(id);
  if (!follows_) return;
  const Standing last = mark_ended<Guarding::kShared>(life(originators(), id));
  count_unproved(id, last.proof() == Proof::none ? -1 : 0);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline std::uint32_t Tracker<TableOf, GuardsType, K>::timeout(ConnectionState state,
                                                              std::uint8_t protocol) const {
  if (follows_ && state == ConnectionState::none && protocol != kProtocolTcp)
    state = next_state(state, Direction::originator, Signal::packet, protocol, 0);
  return timeouts_.of(state, protocol);
}

/// Returns when ageing must read the deadline again: within `kLookAgainMs` if tables are shared
/// and packets followed: another worker that brings the deadline forward cannot tell this ageing.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline Tick Tracker<TableOf, GuardsType, K>::capped(Tick now, Tick deadline) const {
  if constexpr (!Guarding::kShared) return deadline;
  const Tick cap = now + kLookAgainMs;
  return follows_ && deadline - cap > 0 ? cap : deadline;
}

}  // namespace millrace
