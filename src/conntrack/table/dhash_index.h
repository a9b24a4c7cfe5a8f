// The index of `dhash`: its buckets, their conflict lists, and the pool of nodes for these lists.
// It stores signatures, and neither keys nor records. A place, which is a slot or a node, has a
// fixed id.
//
//     buckets (dhash_bucket.h)                     slot s of bucket b has the id 16 b + s
//
//     heads   an id or none for each bucket
//
//     node    0           4           8
//             +-----------+-----------+            node n has the id 16 buckets + n
//             | signature | next      |            next: an id; none ends a list
//             +-----------+-----------+
//
// The index keeps invariants 3, 5 and 6 of dhash.h, and the part of invariant 2 by which a node
// stands in one list.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "conntrack/table/dhash_bucket.h"
#include "conntrack/table/dhash_signature.h"
#include "millrace/memory.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// The index, for signatures of that type.
template <class Signature>
class DHashIndex {
 public:
  using Bucket = DHashBucket;
  using Word = Bucket::Word;
  static constexpr unsigned kSlots = Bucket::kSlots;

  struct Node {
    Word signature = Bucket::kFree;
    ConnId next = ConnId::none;
  };
  static_assert(sizeof(Node) == 8);

  /// Makes an empty index. Errors (failed): no memory.
  static Result<DHashIndex> create(std::uint32_t buckets, std::uint32_t pool, Pages pages) {
    auto memory = Memory::map(nodes_offset(buckets) + pool * sizeof(Node), pages);
    if (!memory) return std::unexpected(memory.error());
    return DHashIndex(std::move(*memory), buckets, pool);
  }

  Bucket& bucket(std::uint32_t at) const { return reinterpret_cast<Bucket*>(memory_.data())[at]; }
  ConnId& head(std::uint32_t at) const { return reinterpret_cast<ConnId*>(&bucket(buckets_))[at]; }
  Node& node(ConnId id) const { return nodes_[millrace::index(id) - slots()]; }

  bool in_slot(ConnId id) const { return millrace::index(id) < slots(); }
  static ConnId slot(std::uint32_t at, unsigned slot) { return ConnId{at * kSlots + slot}; }
  Word signature(ConnId id) const {
    return in_slot(id)
               ? bucket(millrace::index(id) / kSlots).signature(millrace::index(id) % kSlots)
               : node(id).signature;
  }

  /// Returns a free place for an entry of the bucket: the first free slot from `start` on,
  /// wrapping; else a node, else none. The caller must `occupy` the place.
  ConnId take(std::uint32_t at, unsigned start);
  /// Makes a place live, with that signature.
  void occupy(std::uint32_t at, ConnId id, Word signature);
  /// Takes a live place out of the bucket. The caller must then `occupy` the place, or mark it as
  /// draining.
  void vacate(std::uint32_t at, ConnId id);
  /// Makes a live place draining; `release` makes it free.
  void drain(std::uint32_t at, ConnId id);
  void release(ConnId id) {
    set_free(id);
    --draining_;
  }

  template <class Each>
  void for_each_in_slots(std::uint32_t at, Each&& each) const {
    for (std::uint32_t live = bucket(at).live(); live != 0; live &= live - 1)
      each(slot(at, static_cast<unsigned>(std::countr_zero(live))));
  }
  template <class Each>
  void for_each_in_list(std::uint32_t at, Each&& each) const {
    for (ConnId id = head(at); id != ConnId::none; id = node(id).next) each(id);
  }
  template <class Each>
  void for_each(std::uint32_t at, Each&& each) const {
    for_each_in_slots(at, each);
    for_each_in_list(at, each);
  }
  /// Returns the first id in the bucket's list for which `wanted(id)` is true, or none.
  template <class Wanted>
  ConnId find_in_list(std::uint32_t at, Wanted&& wanted) const {
    ConnId id = head(at);
    while (id != ConnId::none && !wanted(id)) id = node(id).next;
    return id;
  }
  /// Walks as ConnectionTable says, in the order of the ids.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const;

  std::size_t size() const { return size_; }
  std::uint32_t buckets() const { return buckets_; }
  std::uint32_t pool() const { return pool_; }
  std::uint32_t slots() const { return buckets_ * kSlots; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }
  /// Returns the invariant that is broken, or nothing.
  std::string_view wrong() const;

 private:
  /// The places that a check has reached. `add` returns false for a place that was added before.
  struct Met {
    std::vector<bool> places;
    std::size_t count = 0;

    bool add(ConnId id) {
      if (millrace::index(id) >= places.size() || places[millrace::index(id)]) return false;
      places[millrace::index(id)] = true;
      ++count;
      return true;
    }
  };

  DHashIndex(Memory memory, std::uint32_t buckets, std::uint32_t pool);

  /// Returns the offset of the nodes, at the start of a cache line, so that no node lies in two.
  static std::size_t nodes_offset(std::size_t buckets) {
    return buckets * sizeof(Bucket) + (buckets * sizeof(ConnId) + 63) / 64 * 64;
  }

  unsigned major(ConnId id) const { return major_location<Signature>(node(id).signature); }
  void link(std::uint32_t at, ConnId id);
  void unlink(std::uint32_t at, ConnId id);
  void write(ConnId id, Word word) {
    if (!in_slot(id))
      node(id).signature = word;
    else
      bucket(millrace::index(id) / kSlots).put(millrace::index(id) % kSlots, word);
  }
  void set_free(ConnId id) {
    write(id, Bucket::kFree);
    if (!in_slot(id)) node(id).next = std::exchange(free_nodes_, id);
  }
  template <class Each>
  void for_each_of_sixteen_nodes(std::uint32_t first, Each&& each) const;
  std::string_view wrong_bucket(std::uint32_t at, Met& met) const;

  Memory memory_;  // buckets, heads, nodes
  Node* nodes_ = nullptr;
  std::uint32_t buckets_ = 0;
  std::uint32_t pool_ = 0;
  ConnId free_nodes_ = ConnId::none;
  std::size_t size_ = 0;
  std::size_t draining_ = 0;
};

template <class S>
DHashIndex<S>::DHashIndex(Memory memory, std::uint32_t buckets, std::uint32_t pool)
    : memory_(std::move(memory)),
      nodes_(reinterpret_cast<Node*>(memory_.data() + nodes_offset(buckets))),
      buckets_(buckets),
      pool_(pool) {
  std::fill_n(&head(0), buckets_, ConnId::none);
  for (std::uint32_t n = pool_; n-- > 0;) set_free(ConnId{slots() + n});
}

template <class S>
ConnId DHashIndex<S>::take(std::uint32_t at, unsigned start) {
  if (bucket(at).free() != 0) return slot(at, bucket(at).first_free(start));
  if (free_nodes_ == ConnId::none) return ConnId::none;
  return std::exchange(free_nodes_, node(free_nodes_).next);
}

template <class S>
void DHashIndex<S>::occupy(std::uint32_t at, ConnId id, Word signature) {
  write(id, signature);
  if (!in_slot(id)) link(at, id);
  ++size_;
}

template <class S>
void DHashIndex<S>::vacate(std::uint32_t at, ConnId id) {
  if (!in_slot(id)) unlink(at, id);
  --size_;
}

template <class S>
void DHashIndex<S>::drain(std::uint32_t at, ConnId id) {
  vacate(at, id);
  write(id, Bucket::kDraining);
  ++draining_;
}

template <class S>
void DHashIndex<S>::link(std::uint32_t at, ConnId id) {
  node(id).next = std::exchange(head(at), id);
  bucket(at).set_listed(major(id), true);
}

template <class S>
void DHashIndex<S>::unlink(std::uint32_t at, ConnId id) {
  ConnId* before = &head(at);
  while (*before != id) before = &node(*before).next;
  *before = node(id).next;
  const auto alike = [&](ConnId other) { return major(other) == major(id); };
  bucket(at).set_listed(major(id), find_in_list(at, alike) != ConnId::none);
}

/// Calls `each` for the live nodes among the sixteen nodes from number `first` on.
template <class S>
template <class Each>
void DHashIndex<S>::for_each_of_sixteen_nodes(std::uint32_t first, Each&& each) const {
  for (std::uint32_t n = first; n < std::min(first + 16, pool_); ++n) {
    const Word signature = nodes_[n].signature;
    if (signature != Bucket::kFree && signature != Bucket::kDraining) each(ConnId{slots() + n});
  }
}

template <class S>
template <class Visit>
Cursor DHashIndex<S>::walk(Cursor cursor, std::size_t about, Visit&& visit) const {
  const std::uint64_t end = buckets_ + (std::uint64_t{pool_} + 15) / 16;
  auto at = static_cast<std::uint64_t>(cursor);
  std::size_t visited = 0;
  const auto see = [&](ConnId id) {
    visit(id);
    ++visited;
  };
  for (; at < end && visited < about; ++at, ++visited) {
    if (at < buckets_)
      for_each_in_slots(static_cast<std::uint32_t>(at), see);
    else
      for_each_of_sixteen_nodes(static_cast<std::uint32_t>(at - buckets_) * 16, see);
  }
  return at == end ? Cursor::end : Cursor{at};
}

template <class S>
std::string_view DHashIndex<S>::wrong() const {
  Met met{std::vector<bool>(slots() + pool_)};
  std::size_t free_slots = 0;
  for (std::uint32_t at = 0; at < buckets_; ++at) {
    if (const auto wrong = wrong_bucket(at, met); !wrong.empty()) return wrong;
    free_slots += static_cast<std::size_t>(std::popcount(bucket(at).free()));
  }
  if (met.count != size_) return "6: size() is not the number of live slots and nodes";
  for (ConnId id = free_nodes_; id != ConnId::none; id = node(id).next) {
    if (in_slot(id) || !met.add(id) || node(id).signature != Bucket::kFree)
      return "5: the list of free nodes has a place that is no free node";
  }
  if (met.count + free_slots + draining_ != met.places.size())
    return "5: a place is neither live, draining nor free";
  return {};
}

/// Checks a bucket, and adds its live places to `met`. Returns the invariant that is broken, or
/// nothing.
template <class S>
std::string_view DHashIndex<S>::wrong_bucket(std::uint32_t at, Met& met) const {
  for_each_in_slots(at, [&](ConnId id) { met.add(id); });
  std::uint32_t majors = 0;
  for (ConnId id = head(at); id != ConnId::none; id = node(id).next) {
    if (in_slot(id) || !met.add(id)) return "2: a node stands in two lists";
    majors |= 1U << major(id);
  }
  for (unsigned i = 0; i < kSlots; ++i) majors ^= std::uint32_t{bucket(at).listed(i)} << i;
  return majors == 0 ? "" : "3: a bit L is wrong";
}

}  // namespace MILLRACE_ISA
}  // namespace millrace
