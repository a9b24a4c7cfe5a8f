#include "fragments/datagrams.h"

#include <algorithm>
#include <string>

#include "core/elapsed.h"

namespace millrace {
namespace {

/// Links all elements of a pool into its list of free ones. Returns the first.
template <class Element>
std::uint32_t link_all(std::vector<Element>& pool) {
  for (std::uint32_t i = 0; i + 1 < pool.size(); ++i) pool[i].next = i + 1;
  return 0;
}

/// Takes an element from a list of free ones, which must not be empty.
template <class Element>
std::uint32_t pop(std::vector<Element>& pool, std::uint32_t& free) {
  const std::uint32_t taken = free;
  free = pool[taken].next;
  pool[taken] = {};
  return taken;
}

template <class Element>
void push(std::vector<Element>& pool, std::uint32_t& free, std::uint32_t index) {
  pool[index].next = free;
  free = index;
}

}  // namespace

template <class K>
Datagrams<K>::Datagrams(const Secret& secret)
    : hasher_(secret),
      entries_(kDatagrams),
      buckets_(kDatagrams, kNone),
      more_parts_(kBlocks),
      kept_(kMostKept),
      open_of_source_(kCounts),
      kept_of_source_(kCounts),
      blocks_of_source_(kCounts),
      free_entry_(link_all(entries_)),
      free_parts_(link_all(more_parts_)),
      free_kept_(link_all(kept_)) {}

template <class K>
std::size_t Datagrams<K>::memory_bytes() const {
  const auto bytes = [](const auto& all) { return all.size() * sizeof(all.front()); };
  return bytes(entries_) + bytes(buckets_) + bytes(more_parts_) + bytes(kept_) +
         bytes(open_of_source_) + bytes(kept_of_source_) + bytes(blocks_of_source_);
}

// --- a fragment

/// False for a fragment that no sender makes (RFC 791, 3.2; RFC 8200, 4.5): it is empty, ends
/// beyond the largest datagram, or leaves a gap to the next one that no other fragment can fill.
template <class K>
bool Datagrams<K>::is_possible(const Fragment<A>& fragment) {
  constexpr std::uint32_t kMost = UINT16_MAX - (A::kBytes == 4 ? 20 : 0);
  return fragment.end > fragment.begin && fragment.end <= kMost &&
         (fragment.is_last || (fragment.end - fragment.begin) % 8 == 0);
}

template <class K>
auto Datagrams<K>::take(const Arrival& arrival, Tick now, std::vector<ReleasedFragment>& released)
    -> Answer {
  const Fragment<A>& fragment = arrival.fragment;
  if (!is_possible(fragment)) return {Verdict::fragment_invalid, {}};
  Index index = find_entry(fragment.datagram);
  if (index != kNone && elapsed_ms(entries_[index].since, now) > kLastsMs) {
    forget(index, Verdict::fragment_timeout, released);
    index = kNone;
  }
  Fit fits = Fit::fits;
  if (index != kNone) {
    fits = fit(entries_[index], fragment);
    // A complete datagram may be followed by another one with its identification.
    if (entries_[index].is_complete && (fits != Fit::repeats || fragment.is_first())) {
      forget(index, Verdict::fragment_timeout, released);
      index = kNone;
      fits = Fit::fits;
    }
  }
  if (index == kNone) index = make(fragment.datagram, now, released);
  if (index == kNone) return {Verdict::fragment_limit, {}};
  Entry& entry = entries_[index];
  if (entry.state == State::overlaps) return answer(entry);
  const bool is_known = entry.state != State::waits;
  const bool is_other_first =
      fragment.is_first() && is_known &&
      (arrival.key == nullptr ? entry.state == State::known
                              : entry.state != State::known || key_of(entry) != *arrival.key);
  if (fits == Fit::contradicts || is_other_first) {
    entry.state = State::overlaps;
    release(entry, Verdict::fragment_overlap, released);
    return answer(entry);
  }
  const bool waits = !is_known && !fragment.is_first();
  if (waits && (!arrival.may_be_kept || free_kept_ == kNone ||
                kept_of_source_[count_of(fragment.datagram)] == kMostKeptOfSource))
    return {Verdict::fragment_limit, {}};
  if (fits == Fit::fits && !add_part(entry, fragment)) return {Verdict::fragment_limit, {}};
  if (waits) {
    keep(entry, arrival.packet);
    return {Verdict::held, {}};
  }
  if (fragment.is_first()) set_state(index, arrival, released);
  complete_if_whole(index);
  return answer(entry);
}

/// Sets the state of a datagram whose first fragment has come, and releases those kept for it.
template <class K>
void Datagrams<K>::set_state(Index index, const Arrival& arrival,
                             std::vector<ReleasedFragment>& released) {
  Entry& entry = entries_[index];
  entry.state = arrival.key != nullptr ? State::known : State::keyless;
  if (arrival.key != nullptr) {
    entry.source_port = arrival.key->source_port;
    entry.destination_port = arrival.key->destination_port;
    entry.key_protocol = arrival.key->protocol;
  }
  release(entry, answer(entry).verdict, released);
}

template <class K>
void Datagrams<K>::complete_if_whole(Index index) {
  Entry& entry = entries_[index];
  if (entry.is_complete || entry.total == 0 || entry.bytes != entry.total) return;
  remove(open_, index);
  --open_of_source_[count_of(entry.datagram)];
  free_parts(entry);
  entry.is_complete = true;
  append(complete_, index);
}

template <class K>
auto Datagrams<K>::answer(const Entry& entry) const -> Answer {
  if (entry.state == State::known) return {Verdict::tracked, key_of(entry)};
  if (entry.state == State::overlaps) return {Verdict::fragment_overlap, key_of(entry)};
  return {Verdict::fragment, {}};
}

template <class K>
K Datagrams<K>::key_of(const Entry& entry) const {
  K key;
  key.source = entry.datagram.source;
  key.destination = entry.datagram.destination;
  key.source_port = entry.source_port;
  key.destination_port = entry.destination_port;
  key.protocol = entry.key_protocol;
  key.set_zone(entry.datagram.customer);
  return key;
}

template <class K>
auto Datagrams<K>::find(const Datagram<A>& datagram) const -> Answer {
  const Index index = find_entry(datagram);
  if (index == kNone || entries_[index].state == State::waits) return {Verdict::fragment_limit, {}};
  return answer(entries_[index]);
}

// --- parts

/// Calls `each(part)` for each part, until `each` returns true. Returns whether it did.
template <class K>
template <class Each>
bool Datagrams<K>::each_part(const Entry& entry, Each&& each) const {
  Index more = entry.more_parts;
  for (unsigned n = 0, in = 0; n < entry.parts; ++n) {
    if (n < kFirstParts) {
      if (each(entry.part[n])) return true;
      continue;
    }
    // The newest block comes first, and only it may have room.
    if (in == 0) in = (entry.parts - n - 1) % kPartsABlock + 1;
    if (each(more_parts_[more].part[--in])) return true;
    if (in == 0) more = more_parts_[more].next;
  }
  return false;
}

template <class K>
auto Datagrams<K>::fit(const Entry& entry, const Fragment<A>& fragment) const -> Fit {
  if (entry.is_complete)
    return fragment.end <= entry.total && fragment.is_last == (fragment.end == entry.total)
               ? Fit::repeats
               : Fit::contradicts;
  Fit result = Fit::fits;
  if (entry.total != 0 &&
      (fragment.is_last ? fragment.end != entry.total : fragment.end >= entry.total))
    result = Fit::contradicts;
  each_part(entry, [&](const Part& part) {
    const std::uint32_t begin = part.begin8 * 8U;
    const std::uint32_t end = begin + part.bytes;
    if (begin == fragment.begin && end == fragment.end) {
      result = fragment.is_last == (end == entry.total) ? Fit::repeats : Fit::contradicts;
      return true;
    }
    const bool overlaps = begin < fragment.end && fragment.begin < end;
    if (overlaps || (fragment.is_last && end > fragment.end)) result = Fit::contradicts;
    return overlaps;
  });
  return result;
}

/// Notes a part of the datagram. False: it has too many, or there is no memory.
template <class K>
bool Datagrams<K>::add_part(Entry& entry, const Fragment<A>& fragment) {
  if (entry.parts == kMostParts) return false;
  const Part part{static_cast<std::uint16_t>(fragment.begin / 8),
                  static_cast<std::uint16_t>(fragment.end - fragment.begin)};
  if (entry.parts < kFirstParts) {
    entry.part[entry.parts] = part;
  } else {
    const unsigned at = (entry.parts - kFirstParts) % kPartsABlock;
    if (at == 0) {
      std::uint16_t& of_source = blocks_of_source_[count_of(entry.datagram)];
      if (free_parts_ == kNone || of_source == kMostBlocksOfSource) return false;
      ++of_source;
      const Index block = pop(more_parts_, free_parts_);
      more_parts_[block].next = entry.more_parts;
      entry.more_parts = block;
    }
    more_parts_[entry.more_parts].part[at] = part;
  }
  ++entry.parts;
  entry.bytes += fragment.end - fragment.begin;
  if (fragment.is_last) entry.total = fragment.end;
  return true;
}

template <class K>
void Datagrams<K>::free_parts(Entry& entry) {
  while (entry.more_parts != kNone) {
    const Index block = entry.more_parts;
    entry.more_parts = more_parts_[block].next;
    push(more_parts_, free_parts_, block);
    --blocks_of_source_[count_of(entry.datagram)];
  }
  entry.parts = 0;
}

// --- kept fragments

/// Keeps a fragment. There must be room.
template <class K>
void Datagrams<K>::keep(Entry& entry, const KeptFragment& packet) {
  const Index index = pop(kept_, free_kept_);
  kept_[index].packet = packet;
  (entry.last_kept == kNone ? entry.first_kept : kept_[entry.last_kept].next) = index;
  entry.last_kept = index;
  ++kept_count_;
  ++kept_of_source_[count_of(entry.datagram)];
}

template <class K>
void Datagrams<K>::release(Entry& entry, Verdict verdict, std::vector<ReleasedFragment>& released) {
  for (Index at = entry.first_kept; at != kNone;) {
    const Index next = kept_[at].next;
    released.push_back({kept_[at].packet, verdict, key_of(entry)});
    push(kept_, free_kept_, at);
    --kept_count_;
    --kept_of_source_[count_of(entry.datagram)];
    at = next;
  }
  entry.first_kept = entry.last_kept = kNone;
}

// --- datagrams

template <class K>
Hash Datagrams<K>::hash_of(const Datagram<A>& datagram) const {
  K key;
  key.source = datagram.source;
  key.destination = datagram.destination;
  key.source_port = static_cast<std::uint16_t>(datagram.id >> 16);
  key.destination_port = static_cast<std::uint16_t>(datagram.id);
  key.protocol = datagram.protocol;
  key.set_zone(datagram.customer);
  return hasher_(key);
}

/// Returns the place of the counts of a datagram's source.
template <class K>
unsigned Datagrams<K>::count_of(const Datagram<A>& datagram) const {
  K key;
  key.source = prefix_of(datagram.source, A::kBytes == 4 ? 32 : 64);
  key.set_zone(datagram.customer);
  return static_cast<unsigned>(hasher_(key) % kCounts);
}

template <class K>
auto Datagrams<K>::find_entry(const Datagram<A>& datagram) const -> Index {
  Index index = buckets_[hash_of(datagram) % buckets_.size()];
  while (index != kNone && entries_[index].datagram != datagram) index = entries_[index].next;
  return index;
}

/// Makes an entry for a datagram that has none. Returns none if its source has too many.
template <class K>
auto Datagrams<K>::make(const Datagram<A>& datagram, Tick now,
                        std::vector<ReleasedFragment>& released) -> Index {
  std::uint16_t& of_source = open_of_source_[count_of(datagram)];
  if (of_source == kMostOfSource) {
    // The source may send no more: only now is it worth looking for what it no longer needs.
    expire(now, kMostOfSource, released);
    if (of_source == kMostOfSource) return kNone;
  }
  if (free_entry_ == kNone)
    forget(complete_.size != 0 ? complete_.oldest : open_.oldest, Verdict::fragment_limit,
           released);
  const Index index = pop(entries_, free_entry_);
  Entry& entry = entries_[index];
  entry.datagram = datagram;
  entry.since = now;
  entry.state = State::waits;
  Index& bucket = buckets_[hash_of(datagram) % buckets_.size()];
  entry.next = bucket;
  bucket = index;
  append(open_, index);
  ++of_source;
  return index;
}

template <class K>
void Datagrams<K>::forget(Index index, Verdict why, std::vector<ReleasedFragment>& released) {
  Entry& entry = entries_[index];
  release(entry, why, released);
  free_parts(entry);
  Index* link = &buckets_[hash_of(entry.datagram) % buckets_.size()];
  while (*link != index) link = &entries_[*link].next;
  *link = entry.next;
  if (!entry.is_complete) --open_of_source_[count_of(entry.datagram)];
  remove(list_of(entry), index);
  entry.state = State::free;
  push(entries_, free_entry_, index);
}

template <class K>
void Datagrams<K>::expire(Tick now, unsigned most, std::vector<ReleasedFragment>& released) {
  for (const List* list : {&open_, &complete_}) {
    while (most > 0 && list->size != 0 &&
           elapsed_ms(entries_[list->oldest].since, now) > kLastsMs) {
      forget(list->oldest, Verdict::fragment_timeout, released);
      --most;
    }
  }
}

template <class K>
void Datagrams<K>::give_up(std::vector<ReleasedFragment>& released) {
  for (Index at = open_.oldest; at != kNone; at = entries_[at].newer)
    release(entries_[at], Verdict::fragment_timeout, released);
}

template <class K>
void Datagrams<K>::append(List& list, Index index) {
  Entry& entry = entries_[index];
  entry.older = list.newest;
  entry.newer = kNone;
  (list.newest == kNone ? list.oldest : entries_[list.newest].newer) = index;
  list.newest = index;
  ++list.size;
}

template <class K>
void Datagrams<K>::remove(List& list, Index index) {
  const Entry& entry = entries_[index];
  (entry.older == kNone ? list.oldest : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? list.newest : entries_[entry.newer].older) = entry.older;
  --list.size;
}

template <class K>
Result<void> Datagrams<K>::check_invariants() const {
  const auto broken = [](const char* rule) {
    return std::unexpected(Error{rule, Error::Kind::failed});
  };
  std::vector<std::uint32_t> open(kCounts);
  std::vector<std::uint32_t> kept(kCounts);
  std::vector<std::uint32_t> blocks_of(kCounts);
  std::uint32_t kept_in_all = 0;
  std::uint32_t blocks = 0;
  for (const List* list : {&open_, &complete_}) {
    std::uint32_t size = 0;
    for (Index at = list->oldest; at != kNone; at = entries_[at].newer, ++size) {
      const Entry& entry = entries_[at];
      if (entry.state == State::free) return broken("a free datagram is in a list");
      if (entry.is_complete != (list == &complete_))
        return broken("a datagram is in the wrong list");
      if (find_entry(entry.datagram) != at) return broken("a datagram is not found");
      if (!entry.is_complete) ++open[count_of(entry.datagram)];
      for (Index k = entry.first_kept; k != kNone; k = kept_[k].next) {
        ++kept[count_of(entry.datagram)];
        ++kept_in_all;
        if (entry.state != State::waits) return broken("a fragment is kept although it may go on");
      }
      std::uint32_t bytes = 0;
      unsigned parts = 0;
      each_part(entry, [&](const Part& part) {
        bytes += part.bytes;
        ++parts;
        return false;
      });
      if (entry.is_complete ? parts != 0 : bytes != entry.bytes || parts != entry.parts)
        return broken("parts do not add up");
      for (Index b = entry.more_parts; b != kNone; b = more_parts_[b].next) {
        ++blocks;
        ++blocks_of[count_of(entry.datagram)];
      }
    }
    if (size != list->size) return broken("a list has another size");
  }
  if (kept_in_all != kept_count_) return broken("kept fragments do not add up");
  for (unsigned i = 0; i < kCounts; ++i) {
    if (open[i] != open_of_source_[i] || kept[i] != kept_of_source_[i] ||
        blocks_of[i] != blocks_of_source_[i])
      return broken("a source's counts are wrong");
  }
  for (Index b = free_parts_; b != kNone; b = more_parts_[b].next) ++blocks;
  if (blocks != kBlocks) return broken("blocks of parts are lost");
  return {};
}

template class Datagrams<KeyV4>;
template class Datagrams<KeyV6>;

}  // namespace millrace
