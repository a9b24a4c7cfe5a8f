// A ring by which one thread passes packets or other pointers to another: DPDK's rte_ring, behind a
// class that shows none of DPDK's types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "millrace/types.h"

struct rte_ring;

namespace millrace {

/// A ring of pointers. One thread pushes, one pops. Several pushing threads would not be safe: in
/// DPDK 22.11 a thread can make visible what another thread has reserved but not yet written (only
/// x86's memory order prevents that).
class PointerRing {
 public:
  /// Makes a ring with room for `capacity` pointers or more; `capacity` is 1 or more. Errors:
  /// failed (no memory).
  static Result<PointerRing> create(unsigned capacity);

  /// Pushes as many pointers from the front as there is room for, and returns their number.
  std::size_t push(std::span<void* const> pointers);
  /// Pops pointers into the front of `pointers`, in the order in which they were pushed, and
  /// returns their number.
  std::size_t pop(std::span<void*> pointers);
  /// True if the ring is empty. Any thread; the answer is exact only for the popping thread.
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
