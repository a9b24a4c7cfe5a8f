#include "port/ring.h"

// C11 atomics, so that the compiler and the thread sanitizer see the ring's memory order.
#define RTE_USE_C11_MEM_MODEL
#include <rte_ring.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace millrace {

void PointerRing::Free::operator()(rte_ring* ring) const { std::free(ring); }

Result<PointerRing> PointerRing::create(unsigned capacity) {
  const unsigned count = rte_align32pow2(capacity + 1);
  const auto bytes = static_cast<std::size_t>(rte_ring_get_memsize(count));
  std::unique_ptr<rte_ring, Free> ring(
      static_cast<rte_ring*>(std::aligned_alloc(RTE_CACHE_LINE_SIZE, bytes)));
  if (!ring || rte_ring_init(ring.get(), "millrace", count, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0)
    return std::unexpected(Error{"no memory for a ring of " + std::to_string(capacity)});
  return PointerRing(std::move(ring));
}

std::size_t PointerRing::push(std::span<void* const> pointers) {
  return rte_ring_sp_enqueue_burst(ring_.get(), pointers.data(),
                                   static_cast<unsigned>(pointers.size()), nullptr);
}

std::size_t PointerRing::pop(std::span<void*> pointers) {
  return rte_ring_sc_dequeue_burst(ring_.get(), pointers.data(),
                                   static_cast<unsigned>(pointers.size()), nullptr);
}

/// Returns the number of pointers in the ring. DPDK's own function reads the other thread's index
/// without an order.
std::uint32_t PointerRing::count() const {
  const std::uint32_t popped = __atomic_load_n(&ring_->cons.tail, __ATOMIC_ACQUIRE);
  const std::uint32_t pushed = __atomic_load_n(&ring_->prod.tail, __ATOMIC_ACQUIRE);
  return (pushed - popped) & ring_->mask;
}

bool PointerRing::is_empty() const { return count() == 0; }

}  // namespace millrace
