// The search for room in full buckets of `cuckoo++`, which moves entries to their other buckets.
//
//      one of the key's buckets      the step's bucket         a bucket with room
//      +-----------------+           +-----------------+       +-----------------+
//      | . . E . . . . . |  --E-->   | . . . . . F . . | --F-> | . . .   . . . . |
//      +-----------------+           +-----------------+       +-----------------+
//
// The search is breadth first, so that it finds a shortest path, and bounded. No entry moves before
// a whole path is known; then the entries move from the far end on, each into a free slot.
#pragma once

#include <array>
#include <cstdint>

#include "conntrack/table/cuckoo_bucket.h"

namespace millrace {
inline namespace MILLRACE_ISA {

/// One search. `move(from, to)` moves an entry to its other bucket.
template <class Index, class Move>
class CuckooPath {
  using Place = CuckooPlace;
  using Tag = CuckooTag;

 public:
  CuckooPath(const Index& index, const Move& move) : index_(index), move_(move) {}

  /// Empties a slot of one of the key's buckets, and returns the slot; nowhere if the search finds
  /// no path.
  Place room(std::uint32_t home, Tag tag) {
    add(home, count_, 0);
    if (index_.can_send(home)) add(index_.other_of(home, tag), count_, 0);
    for (unsigned at = 0; at < count_; ++at) {
      if (const Place room = extend(at)) return room;
    }
    return {};
  }

 private:
  static constexpr unsigned kMostSteps = 256;  // buckets at most; all paths of 3 moves have 146

  /// A bucket of the search, into which the entry in `slot` of the parent's bucket would move.
  struct Step {
    std::uint32_t bucket;
    std::uint16_t parent;  // number of the previous step; of a path's first step, its own
    std::uint8_t slot;
  };

  void add(std::uint32_t bucket, unsigned parent, unsigned slot) {
    if (count_ == kMostSteps) return;
    steps_[count_++] = {bucket, static_cast<std::uint16_t>(parent),
                        static_cast<std::uint8_t>(slot)};
  }

  /// Checks the other buckets of the entries in step `at`'s bucket. If one has room, moves the
  /// entries along the path and returns the slot that this frees, at the path's start; else adds
  /// the buckets as steps.
  Place extend(unsigned at) {
    const std::uint32_t from = steps_[at].bucket;
    for (const Tag tag : index_.bucket(from).tags) index_.prefetch(index_.other_of(from, tag));
    for (unsigned slot = 0; slot < Index::kSlots; ++slot) {
      const Place place{from, slot};
      const std::uint32_t to = index_.other_of(from, index_.tag(place));
      if ((!index_.is_away(place) && !index_.can_send(from)) || on_path(at, to)) continue;
      if (const Place room = index_.free_in(to)) return shift(at, place, room);
      add(to, at, slot);
    }
    return {};
  }

  /// True if the bucket is on the path to step `at`. A path that had a bucket twice could lose an
  /// entry: one move could take away the entry that another move has brought.
  bool on_path(unsigned at, std::uint32_t bucket) const {
    for (;; at = steps_[at].parent) {
      if (steps_[at].bucket == bucket) return true;
      if (steps_[at].parent == at) return false;
    }
  }

  /// Moves the entry at `from`, in step `at`'s bucket, to `to`, then the entries before it on the
  /// path. Returns the slot that this frees, at the path's start.
  Place shift(unsigned at, Place from, Place to) {
    for (;;) {
      move_(from, to);
      const Step& step = steps_[at];
      if (step.parent == at) return from;
      to = from;
      from = {steps_[step.parent].bucket, step.slot};
      at = step.parent;
    }
  }

  const Index& index_;
  const Move& move_;
  unsigned count_ = 0;
  std::array<Step, kMostSteps> steps_;
};

}  // namespace MILLRACE_ISA
}  // namespace millrace
