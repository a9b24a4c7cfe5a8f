// The part of the tracker that moves connections from one worker, or process, to another.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
LifeImage Tracker<TableOf, GuardsType, K>::image(ConnId id, Tick now) const {
  const auto& header = originators().header(id);
  Life& own = life(originators(), id);
  if (checks_ && header.key.protocol == kProtocolTcp) settle(Side::originator, id);
  const auto mark = [&](Life& of) {
    return has_handshake(header.key.protocol) ? load_mark(of) : age_ms(of, now);
  };
  const ConnId reply = peer_of(header);
  const std::int32_t idle = now - latest_seen(id);
  const bool has_reply = reply != ConnId::none;
  return {.idle_ms = static_cast<std::uint32_t>(std::max(idle, 0)),
          .mark = mark(own),
          .reply_mark = has_reply ? mark(life(replies(), reply)) : 0,
          .standing = load_standing(own),
          .windows = has_reply ? load_windows(life(replies(), reply)) : Windows()};
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::tells_alone(ConnId id, Tick now) const {
  const auto& header = originators().header(id);
  return !has_handshake(header.key.protocol) && now - seen(header) < kBusyMs;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::prefetch_entries(ConnId id, Tick now) const {
  const ConnId reply = peer_of(originators().header(id));
  if (reply != ConnId::none && reply != kUnconfirmed && !tells_alone(id, now))
    replies().prefetch(reply);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::prefetch_leaving(unsigned shard) const {
  const auto prefetch_bucket = [this](Side side, ConnId id) {
    const Hash hash = hash_of(side, id);
    table_of(side).prefetch(std::span(&hash, 1));
  };
  const ConnId first = first_of(shard);
  if (first == ConnId::none) return;
  if (const ConnId reply = peer_of(originators().header(first)); reply != ConnId::none)
    prefetch_bucket(Side::reply, reply);
  const ConnId second = shards_->next(first);
  if (second == ConnId::none) return;
  prefetch_reply(second);
  prefetch_bucket(Side::originator, second);
  const ConnId third = shards_->next(second);
  if (third == ConnId::none) return;
  originators().prefetch(third);
  ageing_->approach(third);
  shards_->prefetch(third);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::rotate(unsigned shard) {
  const ConnId first = shards_->first(shard);
  shards_->unlink(first);
  shards_->append(shard, first);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
std::uint32_t Tracker<TableOf, GuardsType, K>::fingerprint(ConnId id, Tick now) const {
  const auto& header = originators().header(id);
  std::uint64_t sum = hash_of(Side::originator, id);
  const auto mix = [&sum](std::uint64_t value) {
    sum = (sum ^ value) * 0x9e3779b97f4a7c15;
    sum ^= sum >> 32;
  };
  Life& own = life(originators(), id);
  const bool is_busy = tells_alone(id, now) || now - latest_seen(id) < kBusyMs;
  const Standing standing = load_standing(own);
  const auto mix_mark = [&](Life& of) {
    const std::uint32_t step =
        is_busy && standing.state() == ConnectionState::established ? kReach / 2 : 1;
    const std::uint32_t mark = load_mark(of);
    mix(mark == 0 ? 0 : std::uint64_t{mark / step} + 1);  // 0: no mark
  };
  if (!is_busy) mix(latest_seen(id).ms);
  mix_mark(own);
  mix(std::bit_cast<std::uint8_t>(standing));
  // Other workers may be writing the state.
  for (std::byte& one : std::span(states(Side::originator)[id], state_bytes_))
    mix(std::to_integer<std::uint64_t>(std::atomic_ref(one).load(std::memory_order_relaxed)));
  // Marks of protocols without a handshake are the ticks at which connections began, and do not
  // change.
  if (const ConnId reply = peer_of(header);
      reply != ConnId::none && has_handshake(header.key.protocol))
    mix_mark(life(replies(), reply));
  return std::max(static_cast<std::uint32_t>(sum), 1U);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Closed>
ConnId Tracker<TableOf, GuardsType, K>::restore(const Restoring& connection, const LifeImage& image,
                                                Tick now, unsigned shard, Newcomer newcomer,
                                                Closed&& closed) {
  const Insertion in = open(connection.key, hasher()(connection.key), now, closed, newcomer);
  if (in.outcome != Insertion::Outcome::inserted) return ConnId::none;
  const Tick last{now.ms - image.idle_ms};
  std::ranges::copy(connection.state, states(Side::originator)[in.id]);
  ConnId reply = ConnId::none;
  if (connection.reply_key) {
    const Insertion linked =
        link(*connection.reply_key, now, connection.reply_state, closed, newcomer);
    if (linked.outcome != Insertion::Outcome::inserted) {
      abandon(in.id);
      return ConnId::none;
    }
    reply = linked.id;
    see(replies().header(reply), last);
  }
  set_life(in.id, reply, image, now);
  // Sets this tick last: an entry with an old tick could be evicted by the insertion of its own
  // reply's entry.
  see(originators().header(in.id), last);
  confirm(in.id, reply, shard);
  return in.id;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::set_life(ConnId id, ConnId reply, const LifeImage& image,
                                               Tick now) const {
  const bool has_marks = has_handshake(originators().header(id).key.protocol);
  const auto set = [&](const Records<K>& records, ConnId entry, std::uint32_t mark,
                       std::uint32_t opposite, Standing standing, Windows windows) {
    Life& of = life(records, entry);
    store_mark(of, has_marks ? mark : now.ms - mark);
    store_standing(of, standing);
    store_windows(of, windows);
    if (checks_) store_number(acknowledged_by(records, entry), opposite);
  };
  set(originators(), id, image.mark, image.reply_mark, image.standing, {});
  if (reply == ConnId::none) return;
  set(replies(), reply, image.reply_mark, image.mark, Standing::of_reply(image.standing.state()),
      image.windows);
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
void Tracker<TableOf, GuardsType, K>::renew(ConnId id, const LifeImage& image, Tick now) {
  const std::int64_t was = proof_of(id) == Proof::none;
  set_life(id, peer_of(originators().header(id)), image, now);
  // The windows of a reply's entry stand where an originator's has its owner.
  life(originators(), id).owner_or_windows = worker_;
  count_unproved(id, std::int64_t{image.standing.proof() == Proof::none} - was);
}

}  // namespace millrace
