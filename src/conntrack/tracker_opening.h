// The part of the tracker that inserts connections' entries, if need be by eviction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

/// The worth of an entry for eviction: the rank of its state first, then less the longer it has
/// been idle. An entry that a packet used at the present tick is never evicted, as the burst may be
/// using it.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
struct Tracker<TableOf, GuardsType, K>::Worth {
  const Tracker& tracker;
  Side side_of_table;
  Tick now;
  bool evicts;
  std::uint8_t newcomer;
  K* left;

  static constexpr std::uint8_t kLeast = 0;  // expired; a newcomer of this worth evicts nothing

  std::uint8_t operator()(ConnId id) const {
    if (id == ConnId::none) return newcomer;
    if (tracker.leaves_expired_ && tracker.has_expired(side(id), id, now)) return kLeast;
    if (!evicts) return kLeast + 1;
    const auto& header = tracker.originators().header(id);
    if (now - seen(header) <= 0) return UINT8_MAX;
    const ConnId originator = side(id) == Side::originator ? id : header.peer;
    if (tracker.is_kept(originator)) return UINT8_MAX;
    const std::int32_t idle = now - tracker.latest_seen(originator);
    const Standing standing = load_standing(life(tracker.originators(), originator));
    const unsigned rank = millrace::rank(standing.state(), standing.proof() != Proof::none);
    return idle <= 0 ? UINT8_MAX : of(rank, idle);
  }
  void least(ConnId id) const {
    if (side(id) == Side::originator) *left = tracker.originators().header(id).key;
  }
  /// Returns the side of an entry. Trackers that follow packets have both sides in one table; only
  /// such trackers evict live connections.
  Side side(ConnId id) const { return tracker.follows_ ? tracker.side_of(id) : side_of_table; }
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
    return KeepAll{};  // other workers may be using the entry to evict
  } else {
    const bool evicts = evicts_ && newcomer == Newcomer::proved;
    std::uint8_t its_worth = newcomer == Newcomer::adopted ? Worth::kLeast : Worth::kLeast + 1;
    if (evicts) its_worth = Worth::of(has_handshake(protocol) ? 3 : 2, 0);
    return Worth{*this, side, now, evicts, its_worth, &left_};
  }
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
Insertion Tracker<TableOf, GuardsType, K>::open(const K& key, Hash hash, Tick now, Closed&& closed,
                                                Newcomer newcomer) {
  if constexpr (!Guarding::kShared)
    left_ = key;  // `Worth::least` sets it to the key of an evicted entry
  const Insertion in =
      pair().originators.insert(key, hash, worth(Side::originator, now, newcomer, key.protocol));
  if (in.displaced != ConnId::none) make_way(Side::originator, in, closed);
  if (in.outcome == Insertion::Outcome::inserted) {
    const bool has_room = in.displaced != ConnId::none ||
                          shared_->connections.has_room_or_share(worker_, shared_->most);
    count_connections(1);
    if (!has_room) [[unlikely]] {
      erase(Side::originator, in.id, hash);
      return {};
    }
    auto& header = originators().header(in.id);
    see(header, now);
    set_peer(header, kUnconfirmed);
    if (follows_) begin_life(originators(), in.id, {}, now);
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
  if constexpr (!Guarding::kShared) left_ = reply_key;
  Table& table = pair().replies ? *pair().replies : pair().originators;
  const Insertion in = table.insert(reply_key, hasher()(reply_key),
                                    worth(Side::reply, now, newcomer, reply_key.protocol));
  if (in.displaced != ConnId::none) make_way(Side::reply, in, closed);
  if (in.outcome == Insertion::Outcome::inserted) {
    auto& header = replies().header(in.id);
    see(header, now);
    set_peer(header, kUnconfirmed);
    if (follows_) begin_life(replies(), in.id, Standing::of_reply(ConnectionState::none), now);
    std::ranges::copy(state, states(Side::reply)[in.id]);
  }
  return in;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::confirm(ConnId id, ConnId reply, unsigned shard) {
  auto& header = originators().header(id);
  ageing_->born(id, seen(header),
                capped(seen(header), seen(header) + timeout_of(Side::originator, id)));
  if (shards_) shards_->append(shard, id);
  if (copied_) copied_->born(id, shard);
  ++live_;
  if (follows_) {
    life(originators(), id).owner_or_windows = worker_;
    count_unproved(id, proof_of(id) == Proof::none ? 1 : 0);
  }
  join(id, reply);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
auto Tracker<TableOf, GuardsType, K>::room() const -> Room {
  // The number of connections is not checked in two cases. If several workers change the tables at
  // once, reading it is slow. If expired connections stay in the table, the number includes
  // connections that can be evicted.
  const bool counts = !Guarding::kConcurrent && !leaves_expired_;
  if (counts && connections() >= capacity_) return Room::full;
  const auto most = static_cast<std::int64_t>(shared_->most_half_open);
  return shared_->half_open.has_room_or_share(worker_, most) ? Room::there_is : Room::over_budget;
}

/// Ids are read one after the other, which memory is fast at; where half-open connections have
/// filled their share, some 8 of 64 ids are theirs. The one that is idle longest of four is among
/// the younger half of all in one case of 16.
template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
bool Tracker<TableOf, GuardsType, K>::end_half_open(Tick now, Closed&& closed) {
  constexpr unsigned kMostFound = 4;
  constexpr unsigned kMostRead = 256;
  ConnId longest = ConnId::none;
  std::int32_t idle = 0;
  for (unsigned read = 0, found = 0; read < kMostRead && found < kMostFound; ++read) {
    if (half_open_from_ >= ids()) half_open_from_ = 0;
    const ConnId id{static_cast<std::uint32_t>(half_open_from_++)};
    if (!is_live_and_mine(id) || proof_of(id) != Proof::none || is_kept(id)) continue;
    const std::int32_t its = now - seen(originators().header(id));
    if (its <= 0) continue;
    ++found;
    if (its > idle) longest = id;
    idle = std::max(idle, its);
  }
  if (longest == ConnId::none || now - latest_seen(longest) <= 0) return false;
  close(longest, closed);
  return true;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
inline void Tracker<TableOf, GuardsType, K>::begin_life(const Records<K>& records, ConnId id,
                                                        Standing standing, Tick now) const {
  Life& of = life(records, id);
  store_standing(of, standing);
  store_mark(of, has_handshake(records.header(id).key.protocol) ? 0 : now.ms);
  store_windows(of, {});
  if (checks_) store_number(acknowledged_by(records, id), 0);
}

}  // namespace millrace
