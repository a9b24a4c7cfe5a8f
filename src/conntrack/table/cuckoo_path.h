// Room in full buckets of `cuckoo++`, made by moving entries to their other buckets.
//
//      one of the key's buckets      the step's bucket         a bucket with room
//      +-----------------+           +-----------------+       +-----------------+
//      | . . E . . . . . |  --E-->   | . . . . . F . . | --F-> | . . .   . . . . |
//      +-----------------+           +-----------------+       +-----------------+
//
// Searched breadth first, so a path is a shortest one; bounded. Nothing moves before a whole path
// is known, then the far end first: into what is free.
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

  /// Empties a slot of one of the key's buckets, if that can be done.
  Place room(std::uint32_t home, Tag tag) {
    add(home, count_, 0);
    if (index_.can_send(home)) add(index_.other_of(home, tag), count_, 0);
    for (unsigned at = 0; at < count_; ++at) {
      if (const Place room = extend(at)) return room;
    }
    return {};
  }

 private:
  static constexpr unsigned kMostSteps = 256;  // buckets looked at; 3 moves reach 146

  /// A bucket that was reached: the entry in `slot` of the parent's bucket would move in.
  struct Step {
    std::uint32_t bucket;
    std::uint16_t parent;  // its own number: the path begins here
    std::uint8_t slot;
  };

  void add(std::uint32_t bucket, unsigned parent, unsigned slot) {
    if (count_ == kMostSteps) return;
    steps_[count_++] = {bucket, static_cast<std::uint16_t>(parent),
                        static_cast<std::uint8_t>(slot)};
  }

  /// Looks at the other buckets of this step's entries: moves along the path where one has room,
  /// else lists them.
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

  /// A bucket twice on a path could lose an entry: its first move would take what its second
  /// brought.
  bool on_path(unsigned at, std::uint32_t bucket) const {
    for (;; at = steps_[at].parent) {
      if (steps_[at].bucket == bucket) return true;
      if (steps_[at].parent == at) return false;
    }
  }

  /// Moves `from`, of the step `at`, to `to`, and what stands before it on the path after it. The
  /// place that is free then.
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
