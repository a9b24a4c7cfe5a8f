// The part of the tracker that looks up connections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Found>
std::uint64_t Tracker<TableOf, GuardsType, K>::look_up(Side side, std::span<const K> keys,
                                                       std::span<const Hash> hashes, Tick now,
                                                       std::span<ConnId> ids, Stragglers stragglers,
                                                       Found&& found) const {
  if (!has(side)) {
    std::ranges::fill(ids.first(keys.size()), ConnId::none);
    return 0;
  }
  const Table& table = table_of(side);
  table.find(keys, hashes, ids, stragglers);
  std::uint64_t of_replies = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (ids[i] == ConnId::none) continue;
    auto& header = table.records().header(ids[i]);
    if ((Guarding::kConcurrent && peer_of(header) == kUnconfirmed) ||
        (leaves_expired_ && has_expired(follows_ ? side_of(ids[i]) : side, ids[i], now))) {
      ids[i] = ConnId::none;
      continue;
    }
    found(i, header);
    if (follows_) {
      const bool is_reply = load_standing(life(table.records(), ids[i])).is_of_reply();
      of_replies |= std::uint64_t{is_reply} << i;
    }
  }
  return of_replies;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
std::uint64_t Tracker<TableOf, GuardsType, K>::find_to_check(std::span<const K> keys,
                                                             std::span<const Hash> hashes, Tick now,
                                                             std::span<ConnId> ids,
                                                             std::span<Tick> seen_before,
                                                             Stragglers stragglers) {
  std::ranges::fill(seen_before, now);
  return look_up(Side::originator, keys, hashes, now, ids, stragglers,
                 [&](std::size_t i, auto& header) {
                   seen_before[i] = seen(header);
                   see(header, now);
                 });
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
ConnId Tracker<TableOf, GuardsType, K>::peek_one(const K& key, Tick now) const {
  const Hash hash = hasher()(key);
  ConnId id = ConnId::none;
  const bool is_reply = peek({&key, 1}, {&hash, 1}, now, {&id, 1}) != 0;
  if (!is_reply) return id;
  // `kUnconfirmed`: another worker is ending the connection.
  const ConnId originator = peer_of(originators().header(id));
  return originator == kUnconfirmed ? ConnId::none : originator;
}

}  // namespace millrace
