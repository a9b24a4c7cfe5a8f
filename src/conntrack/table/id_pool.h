// Ids for tables that do not derive them from a slot's place.
//
// Owned by one table, and used by that table's worker. Nothing allocates after creation.
//
//      0          free            count - draining       count
//      +----------+------------------+-------------------+---------------------+
//      | free ids |      unused      |   draining ids    | a bit an id: live?  |
//      +----------+------------------+-------------------+---------------------+
//                 ^ a stack            the youngest first
//
// Invariants (`check` quotes them):
//  1. An id is free, draining or live: in the array once, or its bit is set.
//  2. As many bits are set as there are ids neither free nor draining.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/memory.h"
#include "millrace/table.h"
#include "millrace/types.h"

namespace millrace {

/// Gives out the ids 0 to count - 1, the one that became free last first. A returned id drains
/// until `settle`.
class IdPool {
 public:
  static Result<IdPool> create(std::size_t count, Pages pages) {
    auto memory = Memory::map((ids_words(count) + live_words(count)) * 8, pages);
    if (!memory) return std::unexpected(memory.error());
    return IdPool(std::move(*memory), count);
  }
  /// Makes an id live; none when all are in use or draining.
  ConnId take() {
    if (free_ == 0) return ConnId::none;
    const ConnId id = ids()[--free_];
    flip(id);
    return id;
  }
  /// What a `take` some insertions from now will give: its record may be fetched ahead.
  ConnId upcoming() const {
    constexpr std::size_t kAhead = 16;
    return ids()[free_ > kAhead ? free_ - 1 - kAhead : 0];
  }
  /// Undoes a `take`: nobody has seen the id, so it need not drain.
  void put_back(ConnId id) {
    flip(id);
    ids()[free_++] = id;
  }
  void give_back(ConnId id) {
    flip(id);
    ids()[count_ - ++draining_] = id;
  }
  void settle() {
    if (draining_ == 0) return;
    std::copy_n(ids() + (count_ - draining_), draining_, ids() + free_);
    free_ += draining_;
    draining_ = 0;
  }

  /// Visits about that many live ids from the cursor on, in their order, and says where to go on;
  /// the rest of 64 ids counts as a visit where none of it is live. An id does not move, so each
  /// that lives through a whole walk is visited, whatever else is taken or given back meanwhile.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    auto at = static_cast<std::uint64_t>(cursor);
    for (std::size_t visited = 0; at < count_ && visited < about; ++visited) {
      const std::uint64_t live = live_word(at / 64) >> at % 64;
      if (live == 0) {
        at = (at / 64 + 1) * 64;
      } else {
        at += static_cast<unsigned>(std::countr_zero(live));
        visit(ConnId{static_cast<std::uint32_t>(at++)});
      }
    }
    return at >= count_ ? Cursor::end : Cursor{at};
  }

  std::size_t count() const { return count_; }
  std::size_t live() const { return count_ - free_ - draining_; }
  std::size_t free() const { return free_; }
  std::size_t draining() const { return draining_; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

  /// Reads everything; the error names the rule that is broken.
  Result<void> check_invariants() const;

 private:
  IdPool(Memory memory, std::size_t count) : memory_(std::move(memory)), count_(count) {
    while (free_ < count) {
      ids()[free_] = ConnId{static_cast<std::uint32_t>(count - 1 - free_)};
      ++free_;
    }
  }

  static std::size_t ids_words(std::size_t count) { return (count + 1) / 2; }
  static std::size_t live_words(std::size_t count) { return (count + 63) / 64; }
  ConnId* ids() const { return reinterpret_cast<ConnId*>(memory_.data()); }
  std::uint64_t& live_word(std::size_t word) const {
    return reinterpret_cast<std::uint64_t*>(memory_.data())[ids_words(count_) + word];
  }
  bool is_live(ConnId id) const { return (live_word(index(id) / 64) >> index(id) % 64 & 1) != 0; }
  void flip(ConnId id) { live_word(index(id) / 64) ^= std::uint64_t{1} << index(id) % 64; }

  Memory memory_;
  std::size_t count_ = 0;
  std::size_t free_ = 0;
  std::size_t draining_ = 0;
};

inline Result<void> IdPool::check_invariants() const {
  const auto broken = [](const char* rule) {
    return std::unexpected(Error{std::string("id pool: ") + rule});
  };
  if (free_ + draining_ > count_) return broken("2: more ids are free and draining than there are");
  std::vector<bool> listed(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    if (i >= free_ && i < count_ - draining_) continue;
    const ConnId id = ids()[i];
    if (index(id) >= count_ || listed[index(id)] || is_live(id))
      return broken("1: an id is in two states");
    listed[index(id)] = true;
  }
  std::size_t bits = 0;
  for (std::size_t word = 0; word < live_words(count_); ++word)
    bits += static_cast<std::size_t>(std::popcount(live_word(word)));
  if (bits != live()) return broken("2: the live bits are not as many as the live ids");
  return {};
}

}  // namespace millrace
