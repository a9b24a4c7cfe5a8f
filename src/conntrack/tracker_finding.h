// The part of the tracker that looks connections up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Found>
void Tracker<TableOf, GuardsType, K>::look_up(Side side, std::span<const K> keys,
                                              std::span<const Hash> hashes, Tick now,
                                              std::span<ConnId> ids, Stragglers stragglers,
                                              Found&& found) const {
  if (!has(side)) {
    std::ranges::fill(ids.first(keys.size()), ConnId::none);
    return;
  }
  const Table& table = table_of(side);
  table.find(keys, hashes, ids, stragglers);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (ids[i] == ConnId::none) continue;
    auto& header = table.records().header(ids[i]);
    if ((Guarding::kConcurrent && peer_of(header) == kUnconfirmed) ||
        (leaves_expired_ && has_expired(side, ids[i], now))) {
      ids[i] = ConnId::none;
    } else {
      found(header);
    }
  }
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
ConnId Tracker<TableOf, GuardsType, K>::peek_one(const K& key, Tick now) const {
  for (const Side side : {Side::originator, Side::reply}) {
    const Hash hash = hasher()(key);
    ConnId id = ConnId::none;
    if (has(side)) peek(side, {&key, 1}, {&hash, 1}, now, {&id, 1});
    if (id != ConnId::none)
      return side == Side::originator ? id : peer_of(table_of(side).records().header(id));
  }
  return ConnId::none;
}

}  // namespace millrace
