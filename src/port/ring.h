// Packets, or other things, on their way from one thread to another: DPDK's rte_ring, behind a
// class that shows none of DPDK's types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "millrace/types.h"

struct rte_ring;

namespace millrace {

/// Things the size of a pointer. One thread pushes, one pops: of several that push, one can, in
/// DPDK 22.11, make visible what another has reserved, but not what it has written (only x86 orders
/// that).
class PointerRing {
 public:
  /// Room for `capacity`, 1 or more. Errors (failed): no memory.
  static Result<PointerRing> create(unsigned capacity);

  /// The first so many of them found room.
  std::size_t push(std::span<void* const> pointers);
  /// Fills the first so many, in the order in which they were pushed.
  std::size_t pop(std::span<void*> pointers);
  /// Any thread; of the one that pops it is the truth.
  bool is_empty() const;

 private:
  struct Free {
    void operator()(rte_ring* ring) const;
  };
  explicit PointerRing(std::unique_ptr<rte_ring, Free> ring) : ring_(std::move(ring)) {}
  std::uint32_t count() const;

  std::unique_ptr<rte_ring, Free> ring_;
};

}  // namespace millrace
