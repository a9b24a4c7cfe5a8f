// A bitmap of live ids, for ageing and for tables with ids that are not slots of their index.
//
// `LiveBits` is a view of words that its owner provides, zeroed. Only one thread at a time may use
// a view.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "millrace/table.h"
#include "millrace/types.h"

namespace millrace {

class LiveBits {
 public:
  static constexpr std::size_t words(std::size_t ids) { return (ids + 63) / 64; }

  LiveBits(std::byte* memory, std::size_t ids)
      : words_(reinterpret_cast<std::uint64_t*>(memory)), ids_(ids) {}

  bool operator[](ConnId id) const { return (words_[index(id) / 64] >> index(id) % 64 & 1) != 0; }
  void flip(ConnId id) { words_[index(id) / 64] ^= std::uint64_t{1} << index(id) % 64; }

  /// Visits up to `about` live ids from the cursor on, in ascending order, and returns the cursor
  /// to go on from. A word of 64 ids, or the rest of a word, without a live id counts as a visit.
  /// Ids do not move, so every id that is live through a whole walk is visited, whatever is
  /// inserted or erased meanwhile.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    const auto from = static_cast<std::uint64_t>(cursor);
    if (from >= ids_) return Cursor::end;
    const std::uint64_t at = walk(from, ids_, about, visit);
    return at == ids_ ? Cursor::end : Cursor{at};
  }
  /// Visits up to `about` live ids from `at` on and below `until`; returns the id to go on from.
  template <class Visit>
  std::uint64_t walk(std::uint64_t at, std::uint64_t until, std::size_t about,
                     Visit&& visit) const {
    for (std::size_t visited = 0; at < until && visited < about; ++visited) {
      const std::uint64_t live = words_[at / 64] >> at % 64;
      const std::uint64_t next =
          live == 0 ? (at / 64 + 1) * 64 : at + static_cast<unsigned>(std::countr_zero(live));
      at = std::min(next, until);
      if (live != 0 && next < until) visit(ConnId{static_cast<std::uint32_t>(at++)});
    }
    return at;
  }
  std::size_t count() const {
    std::size_t live = 0;
    for (std::size_t word = 0; word < words(ids_); ++word)
      live += static_cast<std::size_t>(std::popcount(words_[word]));
    return live;
  }

 private:
  std::uint64_t* words_;
  std::size_t ids_;
};

}  // namespace millrace
