// Ids for tables that do not derive an id from the position of a slot.
//
// A pool belongs to one table. Only one thread at a time may use it. Only `create` allocates.
//
//      0          free                                count
//      +----------+------------------------------------+---------------------+
//      | free ids |              unused                | a bit an id: live?  |
//      +----------+------------------------------------+---------------------+
//                 ^ a stack
//
// Invariants (check_invariants quotes them):
//  1. An id is free (once in the array), live (its bit is set) or draining (neither).
//  2. The number of set bits is that of ids that are neither free nor draining.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/live_bits.h"
#include "millrace/memory.h"
#include "millrace/table.h"
#include "millrace/types.h"

namespace millrace {

/// Gives out the ids 0 to count - 1, first the id that was freed last. An id that is given back
/// drains until `release`.
class IdPool {
 public:
  /// Makes a pool of free ids. Errors (failed): no memory.
  static Result<IdPool> create(std::size_t count, Pages pages) {
    auto memory = Memory::map(ids_bytes(count) + LiveBits::words(count) * 8, pages);
    if (!memory) return std::unexpected(memory.error());
    return IdPool(std::move(*memory), count);
  }
  /// Makes a free id live and returns it; none if all are live or draining.
  ConnId take() {
    if (free_ == 0) return ConnId::none;
    const ConnId id = ids()[--free_];
    live_.flip(id);
    return id;
  }
  /// Returns the id that the 17th `take` from now will return, if no id is freed until then, or the
  /// last free id if there are fewer: for a prefetch of its record.
  ConnId upcoming() const {
    constexpr std::size_t kAhead = 16;
    return ids()[free_ > kAhead ? free_ - 1 - kAhead : 0];
  }
  /// Undoes the latest `take`: no other code has seen the id, so it need not drain.
  void put_back(ConnId id) {
    live_.flip(id);
    ids()[free_++] = id;
  }
  /// Makes a live id draining.
  void give_back(ConnId id) {
    live_.flip(id);
    ++draining_;
  }
  /// Makes a draining id free.
  void release(ConnId id) {
    ids()[free_++] = id;
    --draining_;
  }

  /// Visits live ids (`LiveBits::walk`).
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    return live_.walk(cursor, about, visit);
  }

  std::size_t count() const { return count_; }
  std::size_t live() const { return count_ - free_ - draining_; }
  std::size_t free() const { return free_; }
  std::size_t draining() const { return draining_; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

  /// Reads the whole pool. Errors (failed): a broken invariant, by number and name.
  Result<void> check_invariants() const;

 private:
  IdPool(Memory memory, std::size_t count)
      : memory_(std::move(memory)), live_(memory_.data() + ids_bytes(count), count), count_(count) {
    while (free_ < count) {
      ids()[free_] = ConnId{static_cast<std::uint32_t>(count - 1 - free_)};
      ++free_;
    }
  }

  /// Returns the bytes of the array of free ids, rounded up to whole 64-bit words.
  static std::size_t ids_bytes(std::size_t count) { return (count + 1) / 2 * 8; }
  ConnId* ids() const { return reinterpret_cast<ConnId*>(memory_.data()); }

  Memory memory_;
  LiveBits live_;
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
  for (std::size_t i = 0; i < free_; ++i) {
    const ConnId id = ids()[i];
    if (index(id) >= count_ || listed[index(id)] || live_[id])
      return broken("1: an id is in two states");
    listed[index(id)] = true;
  }
  if (live_.count() != live()) return broken("2: the live bits are not as many as the live ids");
  return {};
}

}  // namespace millrace
