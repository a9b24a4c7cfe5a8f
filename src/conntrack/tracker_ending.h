// The part of the tracker by which connections end: idle too long, or in another one's way.
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
      std::array<Hash, kLookMost> hashes;
      for (std::size_t i = 0; i < ids.size(); ++i)
        hashes[i] = tracker.hasher()(tracker.originators().header(ids[i]).key);
      tracker.table().prefetch(std::span(hashes).first(ids.size()));
      for (const ConnId id : ids) {
        told(id);
        tracker.end_life(id);
      }
    }
    Tracker& tracker;
    Tick now;
    Closed& told;
  };
  Mine mine(*this, now, closed);
  return ageing_->sweep(now, budget, mine);
}

/// The stamps of both entries become the later one, so that neither grows so old that it seems to
/// lie in the future; looks are days apart at most.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
Tick Tracker<TableOf, GuardsType, K>::latest_seen(ConnId id) const {
  auto& header = originators().header(id);
  const Tick there = seen(header);
  if (header.peer == ConnId::none) return there;
  auto& reply = replies().header(header.peer);
  const Tick back = seen(reply);
  const Tick latest = back - there > 0 ? back : there;
  see_later(header, there, latest);
  see_later(reply, back, latest);
  return latest;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::has_expired(Side side, ConnId id, Tick now) const {
  const auto& header = table_of(side).records().header(id);
  if (now - (seen(header) + timeouts_[state_of(side, id)]) < 0) return false;
  return now - deadline(side == Side::originator ? id : header.peer) >= 0;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
void Tracker<TableOf, GuardsType, K>::make_way(Side side, const Insertion& in, Closed&& closed) {
  const ConnId peer = table_of(side).records().header(in.displaced).peer;
  const ConnId id = side == Side::originator ? in.displaced : peer;
  closed(id);
  ageing_->gone(id);
  leave_life(id);
  if (side == Side::reply) erase(Side::originator, pair().originators, id);
  if (side == Side::originator && peer != ConnId::none) erase(Side::reply, *pair().replies, peer);
  if (in.displaced == in.id) return;
  set_peer(table_of(side).records().header(in.displaced), kUnconfirmed);
  settling_.add(side, in.displaced);
}

}  // namespace millrace
