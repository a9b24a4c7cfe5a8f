// The walk over a `cuckoo++` table, in which entries move.
//
// The walk visits the buckets in their order. If an entry that the walk has not visited moves to a
// bucket that the walk has visited, the entry's slot there gets an *unseen* bit, and the bucket
// gets a bit in a hierarchy (`ModificationBits`). After the last bucket the walk visits the marked
// slots. A bit moves with its entry, and entries that were visited get none, so the number of
// marked slots only shrinks from then on: the walk ends, whatever is inserted meanwhile. The walk
// visits an entry once, and again each time that the entry moves from a visited bucket to one that
// is not visited yet.
//
// There is one set of bits, which the latest walk uses. An earlier walk that is not over goes on by
// ids instead, from the first id on: ids do not move. Any number of walks may therefore be under
// way. A walk writes the bits, so under a sharing scheme it is a writer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "conntrack/table/cuckoo_bucket.h"
#include "conntrack/table/modification_bits.h"
#include "millrace/table.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// The walks over one index, which is passed to each call. The table must call `leave` for each
/// slot that an entry leaves, and before that `note_move` if the entry moves.
template <class Index>
class CuckooWalk {
  using Place = CuckooPlace;

 public:
  /// Makes the bits, without a walk. Errors (failed): no memory.
  static Result<CuckooWalk> create(std::uint32_t buckets, Pages pages) {
    auto marked = ModificationBits::create(buckets, pages);
    if (!marked) return std::unexpected(marked.error());
    return CuckooWalk(std::move(*marked));
  }

  /// Visits entries until the visited entries and buckets together are `about` or a few more, and
  /// returns the cursor to go on from.
  template <class Visit>
  Cursor step(const Index& index, Cursor cursor, std::size_t about, Visit&& visit) {
    if (cursor == Cursor::begin)
      walked_ = 0;  // the new walk clears an abandoned walk's bits when it visits their buckets
    else if (cursor != Cursor{ticket_})
      return step_by_id(index, cursor, about, visit);
    std::size_t visited = 0;
    while (walked_ < index.buckets() && visited < about) {
      const std::uint32_t at = walked_++;
      visited += 1 + show(index, at, index.bucket(at).live(), visit);
    }
    while (marked_.any() && visited < about) {
      const std::uint32_t at = marked_.first();
      visited += show(index, at, index.own(at).unseen, visit);
    }
    if (walked_ < index.buckets() || marked_.any()) return Cursor{++ticket_};
    walked_ = 0;
    return Cursor::end;
  }

  /// Removes the bit of an entry that leaves its slot.
  void leave(const Index& index, Place place) {
    std::uint8_t& unseen = index.own(place.bucket).unseen;
    if (unseen == 0) return;
    unseen &= static_cast<std::uint8_t>(~(1U << place.slot));
    if (unseen == 0) marked_.clear(place.bucket);
  }
  /// Sets the bit of an entry's new slot, if the walk has visited the slot's bucket but not the
  /// entry. Call `leave` for the old slot afterwards.
  void note_move(const Index& index, Place from, Place to) {
    if (!is_unseen(index, from) || to.bucket >= walked_) return;
    index.own(to.bucket).unseen |= static_cast<std::uint8_t>(1U << to.slot);
    marked_.set(to.bucket);
  }

  /// True if only live slots of the bucket are unseen, and if the bucket is marked exactly if it
  /// has an unseen slot.
  bool is_sound(const Index& index, std::uint32_t at) const {
    const std::uint32_t unseen = index.own(at).unseen;
    return (unseen & index.bucket(at).free()) == 0 && marked_.test(at) == (unseen != 0);
  }
  std::size_t memory_bytes() const { return marked_.memory_bytes(); }
  Pages pages() const { return marked_.pages(); }

 private:
  // A cursor is either a ticket (a number, new at each step) or, with this bit set, a cursor of the
  // id pool.
  static constexpr std::uint64_t kById = std::uint64_t{1} << 63;

  explicit CuckooWalk(ModificationBits marked) : marked_(std::move(marked)) {}

  bool is_unseen(const Index& index, Place place) const {
    return place.bucket >= walked_ || (index.own(place.bucket).unseen >> place.slot & 1) != 0;
  }

  /// Visits the entries in the bucket's slots that the mask `slots` names, and returns their
  /// number. Clears the bucket's bits before the first visit.
  template <class Visit>
  std::size_t show(const Index& index, std::uint32_t at, std::uint32_t slots, Visit& visit) {
    const auto ids = index.bucket(at).ids;
    if (index.own(at).unseen != 0) marked_.clear(at);
    index.own(at).unseen = 0;
    const auto count = static_cast<std::size_t>(std::popcount(slots));
    for (; slots != 0; slots &= slots - 1) visit(ids[lowest_slot(slots)]);
    return count;
  }

  template <class Visit>
  static Cursor step_by_id(const Index& index, Cursor cursor, std::size_t about, Visit& visit) {
    const auto bits = static_cast<std::uint64_t>(cursor);
    const auto by_id = (bits & kById) != 0 ? Cursor{bits ^ kById} : Cursor::begin;
    const Cursor next = index.ids.walk(by_id, about, visit);
    return next == Cursor::end ? next : Cursor{static_cast<std::uint64_t>(next) | kById};
  }

  ModificationBits marked_;   // buckets with unseen slots
  std::uint32_t walked_ = 0;  // buckets below this were visited; 0: no walk is under way
  std::uint64_t ticket_ = 0;  // cursor of the walk that has the bits
};

}  // namespace MILLRACE_ISA
}  // namespace millrace
