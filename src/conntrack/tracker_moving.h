// The part of the tracker by which connections move from one worker to another.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
std::size_t Tracker<TableOf, GuardsType, K>::count(unsigned group) const {
  std::size_t count = 0;
  if (groups_->is_empty(group)) return 0;
  for (ConnId id = groups_->first(group); id != ConnId::none; id = groups_->next(id)) ++count;
  return count;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Adopted>
bool Tracker<TableOf, GuardsType, K>::adopt(const Tracker& from, unsigned group,
                                            Adopted&& adopted) {
  if (from.groups_->is_empty(group)) return true;
  std::array<ConnId, Stragglers::kMax> theirs;
  std::array<K, Stragglers::kMax> keys;
  std::array<Hash, Stragglers::kMax> hashes;
  for (ConnId id = from.groups_->first(group); id != ConnId::none;) {
    std::size_t count = 0;
    for (; count < theirs.size() && id != ConnId::none; id = from.groups_->next(id)) {
      from.originators().prefetch(id);
      theirs[count++] = id;
    }
    for (std::size_t i = 0; i < count; ++i) keys[i] = from.originators().header(theirs[i]).key;
    const auto key_span = std::span<const K>(keys).first(count);
    const auto hash_span = std::span(hashes).first(count);
    hasher()(key_span, hash_span);
    prefetch(Side::originator, hash_span);
    prefetch_records(Side::originator, key_span, hash_span);
    for (std::size_t i = 0; i < count; ++i) {
      if (!adopt_one(from, group, theirs[i], hashes[i])) return false;
      adopted(from.states(Side::originator)[theirs[i]], from.proof_of(theirs[i]));
    }
  }
  return true;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
bool Tracker<TableOf, GuardsType, K>::adopt_one(const Tracker& from, unsigned group, ConnId theirs,
                                                Hash hash) {
  const auto& header = from.originators().header(theirs);
  const Tick latest = from.latest_seen(theirs);
  const auto nobody = [](ConnId) {};
  const Insertion in = open(header.key, hash, latest, nobody, Newcomer::adopted);
  if (in.outcome != Insertion::Outcome::inserted) return false;
  std::memcpy(originators().state(in.id), from.originators().state(theirs),
              own_bytes_ + state_bytes_);
  ConnId reply = ConnId::none;
  if (header.peer != ConnId::none) {
    const Insertion linked = link(from.replies().header(header.peer).key, latest,
                                  {from.states(Side::reply)[header.peer], reply_state_bytes_},
                                  nobody, Newcomer::adopted);
    if (linked.outcome != Insertion::Outcome::inserted) {
      abandon(in.id);
      return false;
    }
    reply = linked.id;
    std::memcpy(replies().state(reply), from.replies().state(header.peer), own_bytes_);
  }
  confirm(in.id, reply, group);
  return true;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
template <class Released>
void Tracker<TableOf, GuardsType, K>::release(unsigned group, Released&& released) {
  for (unsigned count = 1; !groups_->is_empty(group); ++count) {
    const ConnId id = groups_->first(group);
    close(id, released);
    if (count % Stragglers::kMax == 0) settle();
  }
  settle();
}

}  // namespace millrace
