// Rings of ids: circular doubly linked lists without allocation. The links stand in one array,
// indexed by id; the heads of the rings follow behind them.
//
// Invariants:
//  1. Every id is in exactly one ring: that of a head, or a ring of the id alone.
//  2. Links are mutual: links[links[x].next].prev == x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/detail/prefetch.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

/// A set of rings over the same ids. Different threads may use different rings, with different ids.
class Rings {
 public:
  /// Makes `rings` empty rings over ids that are in none of them. Errors (failed): no memory.
  static Result<Rings> create(std::size_t ids, std::size_t rings, Pages pages) {
    auto memory = Memory::map((ids + rings) * sizeof(Link), pages);
    if (!memory) return std::unexpected(memory.error());
    return Rings(std::move(*memory), static_cast<std::uint32_t>(ids),
                 static_cast<std::uint32_t>(ids + rings));
  }

  bool is_empty(std::uint32_t ring) const { return link(ids_ + ring).next == ids_ + ring; }
  /// Returns the first id of a ring that is not empty.
  ConnId first(std::uint32_t ring) const { return ConnId{link(ids_ + ring).next}; }
  /// Returns the id after `id` in its ring, which must have a head, or none after the last id.
  ConnId next(ConnId id) const {
    const std::uint32_t at = link(index(id)).next;
    return at < ids_ ? ConnId{at} : ConnId::none;
  }
  /// Prefetches what `next` and `unlink` read of `id`.
  void prefetch(ConnId id) const { detail::prefetch(&link(index(id))); }
  /// Appends `id`, which must be in no ring with a head.
  void append(std::uint32_t ring, ConnId id) {
    const std::uint32_t head = ids_ + ring;
    const std::uint32_t last = link(head).prev;
    link(index(id)) = {head, last};
    link(last).next = index(id);
    link(head).prev = index(id);
  }
  /// Takes `id` out of its ring.
  void unlink(ConnId id) {
    const std::uint32_t at = index(id);
    const Link l = link(at);
    link(l.prev).next = l.next;
    link(l.next).prev = l.prev;
    link(at) = {at, at};
  }

  std::size_t memory_bytes() const { return memory_.bytes(); }
  Result<void> check_invariants() const {
    std::size_t linked = 0;
    for (std::uint32_t head = ids_; head < links_; ++head) {
      for (std::uint32_t at = link(head).next; at != head; at = link(at).next) {
        if (at >= ids_ || ++linked > ids_) return broken("1: a ring does not close");
      }
    }
    std::size_t alone = 0;
    for (std::uint32_t at = 0; at < links_; ++at) {
      if (link(link(at).next).prev != at) return broken("2: a link is not mutual");
      alone += at < ids_ && link(at).next == at;
    }
    if (linked + alone != ids_) return broken("1: an id is in no ring");
    return {};
  }

 private:
  struct Link {
    std::uint32_t next;
    std::uint32_t prev;
  };

  Rings(Memory memory, std::uint32_t ids, std::uint32_t links)
      : memory_(std::move(memory)), ids_(ids), links_(links) {
    for (std::uint32_t i = 0; i < links_; ++i) link(i) = {i, i};
  }

  Link& link(std::uint32_t at) const { return reinterpret_cast<Link*>(memory_.data())[at]; }
  static std::unexpected<Error> broken(std::string_view what) {
    return std::unexpected(Error{"rings: " + std::string(what)});
  }

  Memory memory_;
  std::uint32_t ids_;
  std::uint32_t links_;
};

}  // namespace millrace
